"""The page docs/commands.md: every command of ``joao`` with its help text, arguments and options."""

from typing import Any

import typer.main

from joao.evaluation.tables import markdown

INTRODUCTION = (
    "Exit codes: 0 for success, 2 for wrong input, 130 after Ctrl-C, 143 after SIGTERM, 1 if one of several processes "
    "died, 70 for a bug, with the traceback in a file. `joao --version` shows the version. `joao COMMAND --help` shows "
    "the text of this page in the terminal."
)


def commands_page() -> str:
    """The text of the page, generated from the command line itself.

    Only attributes that old and new versions of typer share are used, so that the text does not depend on the version.
    """
    from joao.cli.main import app

    root: Any = typer.main.get_command(app)
    commands = {name: command for name, command in root.commands.items() if not command.hidden}
    overview = [[f"[`joao {name}`](#joao-{name})", _paragraphs(each.help)[0]] for name, each in commands.items()]
    sections = ["# Commands", INTRODUCTION, markdown(["command", "purpose"], overview)]
    for name, command in commands.items():
        sections += _sections(f"joao {name}", command, level=2)
    return "\n\n".join(sections) + "\n"


def _sections(path: str, command: Any, level: int) -> list[str]:
    """Heading, usage, help and tables of a command, then those of its subcommands."""
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [each for each in command.params if each.param_type_name == "option" and not each.hidden]
    subcommands = getattr(command, "commands", {})
    usage = [path, *map(_argument, arguments), *(["COMMAND"] if subcommands else []), "[OPTIONS]"]
    sections = [f"{'#' * level} {path}", f"```text\n{' '.join(usage)}\n```", *_paragraphs(command.help)]
    if arguments:
        rows = [[f"`{each.metavar or each.name.upper()}`", _description(each)] for each in arguments]
        sections.append(markdown(["argument", "description"], rows))
    if options:
        rows = [[_flags(each), _description(each), _default(each)] for each in options]
        sections.append(markdown(["option", "description", "default"], rows))
    for name, subcommand in subcommands.items():
        sections += _sections(f"{path} {name}", subcommand, level + 1)
    return sections


def _paragraphs(text: str | None) -> list[str]:
    return [" ".join(paragraph.split()) for paragraph in (text or "").replace("\b\n", "").split("\n\n")]


def _argument(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    return name if argument.required else f"[{name}]"


def _flags(option: Any) -> str:
    names = sorted([*option.opts, *option.secondary_opts], key=lambda name: not name.startswith("--"))
    value = "" if option.is_flag else f" {option.metavar or option.opts[0].split('-')[-1].upper()}"
    return f"`{', '.join(names)}{value}`"


def _description(parameter: Any) -> str:
    is_option = parameter.param_type_name == "option"
    parts = [
        " ".join((parameter.help or "").split()),
        "Required." if is_option and parameter.required else "",
        "Can be repeated." if is_option and parameter.multiple else "",
        f"Environment variable: `{parameter.envvar}`." if parameter.envvar else "",
    ]
    return " ".join(filter(None, parts))


def _default(option: Any) -> str:
    if isinstance(option.show_default, str):
        return option.show_default
    return "" if option.default is None or isinstance(option.default, bool | list | tuple) else str(option.default)

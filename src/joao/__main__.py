from joao.cli.main import run

run()

"""Changes to record files, for tests."""

import json


def remove(file, *keys):
    """Remove records."""
    lines = file.path.read_text().splitlines()
    file.path.write_text("".join(f"{line}\n" for line in lines if file.key(json.loads(line)) not in keys))

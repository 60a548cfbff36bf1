#!/usr/bin/env bash
# A whole number in an Avro union of double and long is written as a double.
#
# Versions: CPython 3.11, fastavro 1.13.1
# Guess: fastavro picks long for a Python int, whatever the order of the union.
# Seen: The first type that accepts an int is taken, and double accepts it: 2**53 + 1 is read back as
#   9007199254740992.0 from ["null", "double", "long"], and exactly from ["null", "long", "double"].
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/python -m pip install --quiet fastavro==1.13.1
venv/bin/python - <<'END'
import io

import fastavro

def there_and_back(union, value):
    schema = {"type": "record", "name": "row", "fields": [{"name": "x", "type": union}]}
    buffer = io.BytesIO()
    fastavro.writer(buffer, fastavro.parse_schema(schema), [{"x": value}])
    buffer.seek(0)
    return next(fastavro.reader(buffer))["x"]

for union in ["double", "long"], ["null", "double", "long"], ["float", "long"], ["null", "long", "double"]:
    print(union, repr(there_and_back(union, 2**53 + 1)))
assert repr(there_and_back(["null", "double", "long"], 2**53 + 1)) == "9007199254740992.0"
assert repr(there_and_back(["float", "long"], 7)) == "7.0"
assert there_and_back(["null", "long", "double"], 2**53 + 1) == 2**53 + 1
END

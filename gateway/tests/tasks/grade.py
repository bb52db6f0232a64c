#!/usr/bin/env python3
"""Grades a reader's tool calls: grade.py TASKS LIST ANSWERS...

TASKS has the tasks with their keys, LIST the tools that the reader saw (name, description, inputSchema), and each of
ANSWERS a list of {task, tool, arguments}. A call is wrong by its tool or by its parameters: it does not fit the input
schema, breaks the key, or selects or changes something that the user did not ask for.
"""
import json
import re
import sys

import jsonschema

# Parameters that select entries and documents, or change them. A call is wrong if it has one of them that its key does
# not name, with another value than the default. Tools that store or create are exempt.
NARROWING = {
    "thread_id", "thread_ids", "context_ids", "source", "tags", "content_type", "metadata", "metadata_filters",
    "metadata_patch", "start_date", "end_date", "older_than_days", "entity", "include",
    "search_modes", "offset", "cursor", "path", "path_prefix", "images",
}
ABSENT = object()


def fits(wanted, got):
    """Whether a value is what the key wants: equal to it, or accepted by its matcher (an object with one `$` name).

    An object may have more members than the key names.
    """
    if isinstance(wanted, dict) and len(wanted) == 1 and next(iter(wanted)).startswith("$"):
        (name, value), = wanted.items()
        if name == "$absent":
            return got is ABSENT or got is None
        if name == "$any":
            return any(fits(one, got) for one in value)
        if name == "$all":
            return all(fits(one, got) for one in value)
        if got is ABSENT:
            return False
        if name == "$has":
            return isinstance(got, str) and value.lower() in got.lower()
        if name == "$matches":
            return isinstance(got, str) and re.search(value, got, re.IGNORECASE) is not None
        if name == "$case":
            return isinstance(got, str) and re.search(value, got) is not None
        if name == "$between":
            return isinstance(got, (int, float)) and value[0] <= got <= value[1]
        if name == "$set":
            return isinstance(got, list) and len(got) == len(value) and all(
                any(fits(one, item) for item in got) for one in value)
        raise ValueError(f"unknown matcher {name}")
    if got is ABSENT:
        return False
    if isinstance(wanted, dict):
        return isinstance(got, dict) and all(fits(one, got.get(key, ABSENT)) for key, one in wanted.items())
    if isinstance(wanted, list):
        return isinstance(got, list) and len(got) == len(wanted) and all(map(fits, wanted, got))
    return type(wanted) is type(got) and wanted == got or (
        isinstance(wanted, (int, float)) and isinstance(got, (int, float))
        and not isinstance(wanted, bool) and not isinstance(got, bool) and wanted == got)


def faults(key, schema, arguments):
    """What is wrong with the arguments of a call of the right tool."""
    properties = schema["properties"]
    given = {name: value for name, value in arguments.items() if value is not None}
    errors = [error.message[:160] for error in jsonschema.Draft202012Validator(schema).iter_errors(given)]
    for name, wanted in key["arguments"].items():
        if name not in properties:
            if name in key.get("if_known", []):
                continue
            raise ValueError(f"{key['tool']} has no parameter {name}")
        got = given.get(name, properties[name].get("default", ABSENT))
        if not fits(wanted, got):
            errors.append(f"{name}: {'absent' if got is ABSENT else json.dumps(got)}")
    for name, value in given.items():
        default = properties.get(name, {}).get("default", ABSENT)
        if name in NARROWING and not key["tool"].startswith(("store", "create")) and name not in key["arguments"] and value != default:
            errors.append(f"{name}: not asked for")
    return errors


def main():
    tasks, tools, *answers = (json.load(open(path)) for path in sys.argv[1:])
    schemas = {tool["name"]: tool["inputSchema"] for tool in tools}
    for path, calls in zip(sys.argv[3:], answers):
        calls = {call["task"]: call for call in calls}
        wrong_tool = wrong_parameter = impossible = 0
        for task in tasks:
            keys = [key for key in task["accept"] if key["tool"] in schemas]
            call = calls.get(task["id"], {"tool": None, "arguments": {}})
            if not keys:
                impossible += 1
                print(f"{task['id']} has no tool in this list; answered {call['tool']}")
                continue
            keys = [key for key in keys if key["tool"] == call["tool"]]
            if not keys:
                wrong_tool += 1
                print(f"{task['id']} ({task['about']}): wrong tool {call['tool']}")
                continue
            errors = min((faults(key, schemas[key["tool"]], call.get("arguments") or {}) for key in keys), key=len)
            if errors:
                wrong_parameter += 1
                print(f"{task['id']} ({task['about']}): wrong parameter of {call['tool']}: {'; '.join(errors)}")
        print(f"{path}: {len(tasks)} tasks, {wrong_tool} wrong tool, {wrong_parameter} wrong parameter, "
              f"{impossible} without a tool")


if __name__ == "__main__":
    main()

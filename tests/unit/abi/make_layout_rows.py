#!/usr/bin/python3
"""Turns expected/struct_layout.txt into rows of macros for layout_test.cpp. Usage: make_layout_rows.py IN OUT"""
import sys

struct = None
with open(sys.argv[1], encoding="ascii") as source, open(sys.argv[2], "w", encoding="ascii") as out:
    for fields in map(str.split, source):
        if fields[0] == "struct":
            struct = fields[1]
            size, align = (field.split("=")[1] for field in fields[2:])
            out.write(f"STRUCT({struct}, {size}, {align})\n")
        else:
            out.write(f"FIELD({struct}, {fields[1]}, {fields[0][1:]})\n")

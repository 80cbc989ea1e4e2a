"""
shop.py FOLDER N: an application that inserts N rows into a SQLite database, each in a transaction of its own,
and reads its configuration before each.
"""
import os
import sqlite3
import sys
import time

folder, count = sys.argv[1], int(sys.argv[2])
with open(os.path.join(folder, "shop.ini"), "w") as f:
    f.write("table=orders\n")


def config():
    with open(os.path.join(folder, "shop.ini")) as f:
        return f.read().strip().split("=")[1]


def order(db, n):
    table = config()
    with db:
        db.execute(f"insert into {table} values (?)", (n,))


db = sqlite3.connect(os.path.join(folder, "shop.db"))
db.execute("create table orders (n integer)")
for n in range(count):
    order(db, n)
    time.sleep(0.05)  # other work
db.close()

"""Routing rules: a process beside the broker that takes records of topics and routes them.

`RULES.md` describes rule files. The process is a client as any other: it has a consumer group on each topic
that a rule set reads, and publishes what the rules write.

- `file`: parses rule files, with the line of every error
- `matching`: conditions, expressions and templates over one record
- `evaluation`: the outcome of the rules for one record
- `evaluator`: the child process in which rules are evaluated, and which is killed at a deadline
- `history`: the versions of rule sets, and the groups that they have on topics
- `routing`: workers, each of which takes the records of a topic, and publishes what rules make of them
- `service`: runs all rule sets of a broker; `__main__` is its process
"""

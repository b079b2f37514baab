"""The command `quoth`.

`main` is the entry, `application` composes the commands, `cli` holds what they share, `printing` what they
print, `records` what they read. Most commands are clients of a broker; `serve` and `demo` run one, `log`,
`backup` and `restore` work on its files without one.
"""

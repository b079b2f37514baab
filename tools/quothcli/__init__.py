"""The command `quoth`: everything that a person types, one file per noun.

`main` is the entry and `application` composes the commands; `options` holds what they share, `output` what
they print, `exits` how they end. Most commands are clients of a broker; `serve` and `demo` run one, `log`,
`backup` and `restore` work on its files without one.
"""

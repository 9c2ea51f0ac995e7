"""Configuration: one file and the environment become one checked message.

`loading` reads and checks; `text` and `values` turn TOML, YAML and variables into the fields of the message; `access`,
`addresses`, `secrets` and `storage` hold the rules about several keys. Packages above register theirs (`also_check`).
`secret_scopes` and `secret_values` say who may use a secret, and give it.
"""

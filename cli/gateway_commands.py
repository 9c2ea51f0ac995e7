"""`fetchbox gateway`: what stands before the REST gateway."""

from pathlib import Path
from typing import Annotated

import typer

from cli.command import command, group
from cli.output import out
from cli.problems import USAGE, CommandError
from cli.settings import settings

app = group("Put Envoy before the gateway.")


@command(app)
def envoy(
    context: typer.Context,
    directory: Annotated[Path, typer.Option("--out", help="Where envoy.json and its README.md go.")],
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where Envoy listens.")] = "127.0.0.1:8443",
    admin: Annotated[str, typer.Option(metavar="HOST:PORT", help="Its admin page; default: none.")] = "",
    jwks: Annotated[Path | None, typer.Option(help="Keys (JSON); every request must carry a token of theirs.")] = None,
    issuer: Annotated[str, typer.Option(help="The issuer of these tokens.")] = "",
    audience: Annotated[str, typer.Option(help="Their audience; default: any.")] = "",
    cert: Annotated[Path | None, typer.Option(help="Its certificate (PEM); default: security.tls.")] = None,
    key: Annotated[Path | None, typer.Option(help="The key of --cert.")] = None,
    rate: Annotated[int, typer.Option(min=0, help="Requests a second in all; 0: no limit.")] = 0,
) -> None:
    """Write a configuration of Envoy: gRPC, gRPC-Web, REST and event streams at one port, by HTTP/1.1 and HTTP/2.

    It follows from the protos and from --config. What Envoy does not do right stays with the gateway behind it, and
    stands in the README.md beside the file, with the reasons.

    `fetchbox gateway envoy --out deploy/envoy --listen 0.0.0.0:8443`
    """
    try:
        from gateway.envoy.bootstrap import Front  # noqa: PLC0415  # seconds that no other command need pay
        from gateway.envoy.filters import Jwt  # noqa: PLC0415
        from gateway.envoy.generate import write  # noqa: PLC0415
    except ImportError as error:
        raise CommandError(
            "the configuration of Envoy needs the extra `envoy`", USAGE, hint="pip install 'fetchbox[envoy]'"
        ) from error
    if (jwks is None) != (not issuer):
        raise CommandError("--jwks and --issuer belong together", USAGE)
    if (cert is None) != (key is None):
        raise CommandError("--cert and --key belong together", USAGE)
    pair = (str(cert.absolute()), str(key.absolute())) if cert is not None and key is not None else ("", "")
    try:
        jwt = Jwt(issuer, audience, jwks.read_text(encoding="utf-8")) if jwks is not None else None
        selection = write(settings(context).load(), Front(listen, admin, jwt, rate, *pair), directory)
    except OSError as error:
        raise CommandError(f"{error.filename}: {error.strerror}", USAGE) from error
    if out.json:
        left = {left.route.label: left.reason for left in selection.left}
        out.document(
            {
                "file": str(directory / "envoy.json"),
                "transcoded": [route.label for route in selection.transcoded],
                "left_to_the_gateway": left,
            }
        )
    else:
        out.line(str(directory / "envoy.json"))
        out.note(f"Envoy transcodes {len(selection.transcoded)} requests, the gateway {len(selection.left)}")
        out.note(f"run it: envoy -c {directory / 'envoy.json'}")

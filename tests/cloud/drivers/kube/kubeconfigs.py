"""Kubeconfigs as people have them, one after the other, and a server that notes who comes by each.

``CASES`` names files by what is special about them. In their texts ``@SERVER`` is the server's address, ``@CA64`` its
authority in base64, ``@CA64LINES`` the same in lines of 64, ``@CERT64`` and ``@KEY64`` a client's.
"""

import asyncio
import base64
import ssl
import stat
import textwrap
from contextlib import asynccontextmanager

import trustme

CLUSTER = "clusters: [{name: c, cluster: {server: @SERVER, certificate-authority-data: @CA64}}]\n"
CONTEXT = "contexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n"
HEAD = "apiVersion: v1\nkind: Config\n"
USER = "users: [{name: u, user: {token: tok}}]\n"
REST = CONTEXT + USER
PLAIN = HEAD + CLUSTER + REST

PROGRAM = """#!/bin/sh
echo '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "from-program"}}'
"""


def user(text):
    """Return a configuration with another user."""
    return HEAD + CLUSTER + CONTEXT + f"users: [{{name: u, user: {text}}}]\n"


def cluster(text):
    """Return a configuration with another cluster."""
    return HEAD + f"clusters: [{{name: c, cluster: {text}}}]\n" + REST


def program(command, more=""):
    """Return a user whose login is a program."""
    version = "client.authentication.k8s.io/v1"
    return user(f"{{exec: {{apiVersion: {version}, interactiveMode: Never, command: {command}{more}}}}}")


JSON = (
    '{"apiVersion": "v1", "kind": "Config", "current-context": "x",\n'
    '\t"clusters": [{"name": "c", "cluster": {"server": "@SERVER", "certificate-authority-data": "@CA64"}}],\n'
    '\t"contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],\n'
    '\t"users": [{"name": "u", "user": {"token": "tok"}}]}\n'
)
WRAPPED = (
    HEAD
    + "clusters:\n- name: c\n  cluster:\n    server: @SERVER\n    certificate-authority-data: |\n@CA64LINES\n"
    + REST
)

CASES = {
    "plain": PLAIN,
    "comments": f"# mine\n{PLAIN}# end\n",
    "windows lines": PLAIN.replace("\n", "\r\n"),
    "byte order mark": f"\ufeff{PLAIN}",
    "document start": f"---\n{PLAIN}",
    "document end": f"---\n{PLAIN}...\n",
    "two documents": f"{PLAIN}---\nkind: Other\n",
    "json": JSON.replace("\t", " "),
    "json with tabs": JSON,
    "json behind blanks": f"\n  {JSON}",
    "json in one line": JSON.replace("\n", "").replace("\t", ""),
    "no head": CLUSTER + REST,
    "other kind": PLAIN.replace("kind: Config", "kind: Other"),
    "unknown fields": f"{PLAIN}extra: {{a: [1, 2]}}\npreferences: {{colors: true}}\n",
    "anchors": HEAD
    + "clusters: [{name: d, cluster: &c {server: @SERVER, certificate-authority-data: @CA64}}, "
    + "{name: c, cluster: *c}]\n"
    + REST,
    "wrapped base64": WRAPPED,
    "folded base64": WRAPPED.replace("|", ">-"),
    "quoted base64": PLAIN.replace("@CA64", '"@CA64"'),
    "base64 with blanks": PLAIN.replace("@CA64", '" @CA64"'),
    "base64 that is none": PLAIN.replace("@CA64", "'***'"),
    "authority in a file": cluster("{server: @SERVER, certificate-authority: ca.pem}"),
    "authority in a file above": cluster("{server: @SERVER, certificate-authority: ../sub/ca.pem}"),
    "authority that is not there": cluster("{server: @SERVER, certificate-authority: nothing.pem}"),
    "authority twice": PLAIN.replace("server:", "certificate-authority: nothing.pem, server:"),
    "no authority": cluster("{server: @SERVER}"),
    "empty authority": cluster("{server: @SERVER, certificate-authority-data: ''}"),
    "not verified": cluster("{server: @SERVER, insecure-skip-tls-verify: true}"),
    "verified, said so": PLAIN.replace("server:", "insecure-skip-tls-verify: false, server:"),
    "scheme in capitals": PLAIN.replace("@SERVER", "@CAPITALS"),
    "server with a slash": PLAIN.replace("@SERVER", "@SERVER/"),
    "server with a path": PLAIN.replace("@SERVER", "@SERVER/k8s/clusters/c-1"),
    "name of the certificate": cluster(
        "{server: @ADDRESS, certificate-authority-data: @CA64, tls-server-name: localhost}"
    ),
    "no server": cluster("{certificate-authority-data: @CA64}"),
    "no context chosen": HEAD + CLUSTER + USER + "contexts: [{name: x, context: {cluster: c, user: u}}]\n",
    "context that is not there": PLAIN.replace("current-context: x", "current-context: other"),
    "cluster that is not there": PLAIN.replace("cluster: c, user", "cluster: d, user"),
    "user that is not there": PLAIN.replace("user: u}", "user: v}"),
    "no user": PLAIN.replace(", user: u}", "}"),
    "empty user": user("{}"),
    "context without a cluster": PLAIN.replace("cluster: c, ", ""),
    "number for a name": PLAIN.replace("name: x", "name: '1'").replace("current-context: x", "current-context: '1'"),
    "token with a space at its end": user("{token: 'tok '}"),
    "token in a file": user("{tokenFile: token}"),
    "token and a file": user("{token: tok, tokenFile: token}"),
    "password": user("{username: me, password: secret}"),
    "certificate": user("{client-certificate-data: @CERT64, client-key-data: @KEY64}"),
    "certificate in files": user("{client-certificate: cert.pem, client-key: key.pem}"),
    "certificate without its key": user("{client-certificate-data: @CERT64}"),
    "certificate and token": user("{client-certificate-data: @CERT64, client-key-data: @KEY64, token: tok}"),
    "program beside the file": program("./login.sh"),
    "program below the file": program("bin/login.sh"),
    "program above the file": program("../sub/login.sh"),
    "program that is not there": program("./nothing.sh"),
    "program that fails": program("./fails.sh"),
    "program with arguments": program("./login.sh", ", args: [a, b], env: [{name: A, value: b}]"),
    "program and token": program("./login.sh").replace("user: {exec", "user: {token: tok, exec"),
    "impersonation": user("{token: tok, as: other}"),
    "empty": "",
    "blanks": " \n\n",
    "null": "null\n",
    "a list": "- a\n",
    "a word": "word\n",
    "broken": "clusters: [\n",
    "tab for indentation": PLAIN.replace("kind: Config", "preferences:\n\tcolors: true"),
    "the same cluster twice": HEAD
    + "clusters: [{name: c, cluster: {server: @SERVER, certificate-authority-data: @CA64}}, "
    + "{name: c, cluster: {server: @SERVER, certificate-authority-data: @CA64}}]\n"
    + REST,
    "null lists": HEAD + "clusters: null\nusers: null\ncontexts: null\n",
}

SEVERAL = {
    "an empty file first": ("", PLAIN),
    "an empty file last": (PLAIN, ""),
    "in two parts": (HEAD + CLUSTER, REST),
    "the first one wins": (PLAIN, PLAIN.replace("token: tok", "token: other")),
    "the first context wins": (CONTEXT, PLAIN.replace("current-context: x", "current-context: other")),
    "one that is not there": (None, PLAIN),
}
"""Lists of files, as ``KUBECONFIG`` names them; None: it is not there."""

ON_PURPOSE = {
    "not verified": ("refused", "TLS without verification is refused"),
    "impersonation": ("refused", "who acts stays who was named"),
    "no user": ("/probe", "kubectl asks the terminal for a name; the server may let nobody in particular in"),
    "empty user": ("/probe", "likewise"),
}
"""Where we do not do as kubectl does: what comes, and why."""


class Noting:
    """A TLS server that notes each request's credentials and path."""

    def __init__(self):
        self.authority = trustme.CA()
        self.client = trustme.CA()
        self.seen = []
        self.port = 0

    @asynccontextmanager
    async def serving(self):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.authority.issue_cert("localhost").configure_cert(context)
        self.client.configure_trust(context)
        context.verify_mode = ssl.CERT_OPTIONAL
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=context)
        self.port = server.sockets[0].getsockname()[1]
        async with server:
            yield self

    async def _serve(self, reader, writer):
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()
            return
        first, *lines = head.split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines if ": " in line)
        certificate = "certificate" if writer.get_extra_info("peercert") else ""
        path = first.split()[1].partition("?")[0]
        self.seen.append(" ".join(filter(None, (path, headers.get("authorization", ""), certificate))))
        body = b'{"kind": "Status"}'
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n")
        writer.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        await writer.drain()
        writer.close()

    def write(self, folder):
        """Write what files name, into the folder of the kubeconfig."""
        issued = self.client.issue_cert("me@example.org")
        key, cert = issued.private_key_pem.bytes(), issued.cert_chain_pems[0].bytes()
        authority = self.authority.cert_pem.bytes()
        (folder / "bin").mkdir(parents=True)
        for name, content in {"ca.pem": authority, "cert.pem": cert, "key.pem": key, "token": b"from-file\n"}.items():
            (folder / name).write_bytes(content)
        programs = {"login.sh": PROGRAM, "bin/login.sh": PROGRAM, "fails.sh": "#!/bin/sh\necho no >&2\nexit 1\n"}
        for name, text in programs.items():
            (folder / name).write_text(text)
            (folder / name).chmod(stat.S_IRWXU)
        encoded = base64.b64encode(authority).decode()
        self.words = {
            "@CA64LINES": textwrap.indent("\n".join(textwrap.wrap(encoded, 64)), "      "),
            "@CA64": encoded,
            "@CERT64": base64.b64encode(cert).decode(),
            "@KEY64": base64.b64encode(key).decode(),
            "@SERVER": f"https://localhost:{self.port}",
            "@CAPITALS": f"HTTPS://localhost:{self.port}",
            "@ADDRESS": f"https://127.0.0.1:{self.port}",
        }

    def text_of(self, case):
        """Return a case's text."""
        for word, value in self.words.items():
            case = case.replace(word, value)
        return case

    def files(self, folder, name):
        """Write the files of a case; give their paths."""
        texts = SEVERAL.get(name) or (CASES[name],)
        paths = []
        for number, text in enumerate(texts):
            paths.append(folder / f"config-{number}")
            if text is not None:
                paths[-1].write_bytes(self.text_of(text).encode())
        return paths

    def outcome(self, before):
        """Say what came: path and credentials; nothing is a refusal."""
        return self.seen[-1] if len(self.seen) > before else "refused"

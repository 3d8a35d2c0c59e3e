"""Why a session is not there, or not there any more."""


class MCPSessionError(Exception):
    """The session ended, or could not be opened. `was_sent` says whether the server may have got the request."""

    def __init__(self, why: str, *, was_sent: bool) -> None:
        super().__init__(why)
        self.was_sent = was_sent

    def again(self) -> "MCPSessionError":
        """The same for somebody else, who has asked for nothing yet."""
        return MCPSessionError(str(self), was_sent=False)


class AuthorizationRequiredError(MCPSessionError):
    """A user must visit a page before the server can be used. Nothing was done."""

    def __init__(self, label: str, url: str) -> None:
        super().__init__(f"a user must first give leave to use {label}", was_sent=False)
        self.label = label
        self.url = url

    def again(self) -> "AuthorizationRequiredError":
        """The same for somebody else."""
        return AuthorizationRequiredError(self.label, self.url)

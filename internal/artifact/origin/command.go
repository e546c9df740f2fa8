package origin

// commandStep returns what the user of a command should do next about the error.
func (e *Error) commandStep() string {
	s := e.Server
	switch e.Code {
	case CodeInvalidURL, CodeInvalidReference:
		return "correct the artifact's URL"
	case CodeUnreachable:
		return "check that " + both("this machine", s.proxy()) + " can reach the registry"
	case CodeUnauthorized:
		return s.commandCredential("check that the credential is for this registry and has not expired")
	case CodeDenied:
		return s.commandCredential("grant this identity access to the repository; a push needs the right to write")
	case CodeNotFound:
		return s.commandCredential("correct the repository's name, or create the repository")
	case CodeTagNotFound:
		return "correct the tag or digest; lanyard list artifact shows the tags"
	case CodeBlobNotFound:
		return "push the artifact again"
	case CodeThrottled:
		return s.commandCredential("try again later")
	case CodeServer:
		return "find out what is wrong with " + both("the registry", s.proxy()) + ", and try again"
	case CodeProtocol, CodeChanged:
		return "check that the host is an OCI registry"
	case CodeDigestMismatch:
		return "push the artifact again, and check what stands between here and the registry"
	case CodeTruncated:
		return "check the network to " + both("the registry", s.proxy()) + ", and try again"
	case CodeTooLarge:
		return "raise --max-size if you trust the registry"
	case CodeUnsupportedMediaType:
		return "name another artifact: this command reads OCI image manifests with a layer of type tar+gzip"
	case CodeNoMatch:
		return "push such a version or widen the range"
	}
	return ""
}

// commandCredential returns the next step: to send a credential if none was sent, otherwise the
// given step.
func (s Server) commandCredential(otherwise string) string {
	if !s.Anonymous {
		return otherwise
	}
	return "send one with --creds, or log in with docker login"
}

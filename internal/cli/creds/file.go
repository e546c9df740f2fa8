package creds

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/lanyard-dev/lanyard/auth"
)

// maxToken bounds a token, in bytes. Usable tokens are far smaller, because many servers read no
// more than 8 KiB of headers.
const maxToken = 64 << 10

// fileToken reads --token-file.
func (f *Flags) fileToken(context.Context, Receiver) (Credential, error) {
	return f.readToken(flagTokenFile, f.TokenFile)
}

// readToken reads a token from the file that a flag names. It reads the file on each call, because
// the file's writer, such as the kubelet, replaces the token.
func (f *Flags) readToken(flag, path string) (Credential, error) {
	from := fmt.Sprintf("the token in --%s=%s", flag, path)
	token, err := readFile(path)
	if err != nil {
		return Credential{}, fmt.Errorf("--%s: %w", flag, err)
	}
	return f.readJWT(token, from)
}

// readJWT returns a token from a file or variable as a credential. With --audiences, the flag must
// name every audience of the token. If one is missing, readJWT refuses the token. Without
// --audiences, it accepts any audience. The last argument describes the token in errors.
func (f *Flags) readJWT(token, from string) (Credential, error) {
	c, err := newJWT(token, from)
	if err != nil || len(f.Audiences) == 0 {
		return c, err
	}
	for _, audience := range c.claims.Audience {
		if !slices.Contains(f.Audiences, audience) {
			return Credential{}, fmt.Errorf("%s is for audience %.80q, which --%s does not name", from, audience, flagAudiences)
		}
	}
	return c, nil
}

// readFile reads a token's file.
func readFile(path string) (string, error) {
	file, err := os.Open(path) //nolint:gosec // the user's own
	if err != nil {
		return "", err
	}
	defer file.Close() //nolint:errcheck // read only
	data, err := io.ReadAll(io.LimitReader(file, maxToken+1))
	switch {
	case err != nil:
		return "", err
	case len(data) > maxToken:
		return "", fmt.Errorf("%s is longer than a token", path)
	}
	return strings.TrimSpace(string(data)), nil
}

// ReadAccount reads a token's file, and returns the ServiceAccount that is the token's subject. It
// refuses a token that has expired.
func ReadAccount(path string) (namespace, name string, err error) {
	token, err := readFile(path)
	if err != nil {
		return "", "", err
	}
	c, err := newJWT(token, "the token in "+path)
	if err != nil {
		return "", "", err
	}
	account, err := auth.ParseSubject(c.claims.Subject)
	if err != nil || account.Kind() != auth.KindServiceAccount {
		return "", "", fmt.Errorf("the token in %s is of %.80q, which is not a ServiceAccount", path, c.claims.Subject)
	}
	return account.Namespace(), account.Name(), nil
}

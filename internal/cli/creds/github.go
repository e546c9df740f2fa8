package creds

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/transport/attempt"
)

// The variables of a job of GitHub Actions. A runner sets the first two only for a job with the
// permission id-token: write. Source: GitHub, "OpenID Connect reference", "Methods for requesting
// the OIDC token".
const (
	gitHubURL    = "ACTIONS_ID_TOKEN_REQUEST_URL"
	gitHubToken  = "ACTIONS_ID_TOKEN_REQUEST_TOKEN"
	gitHubServer = "GITHUB_SERVER_URL"
)

// gitHubTimeout bounds all attempts to get a token.
const gitHubTimeout = 30 * time.Second

// gitHubToken asks the runner's endpoint for a token of the job. The request carries another token,
// which only GitHub may see. So the endpoint must be GitHub's, and redirects are not followed.
func (f *Flags) gitHubToken(ctx context.Context, to Receiver) (Credential, error) {
	if len(to.Audiences) != 1 {
		return Credential{}, needsAudience(GitHubOIDCToken)
	}
	endpoint, err := f.gitHubEndpoint()
	if err != nil {
		return Credential{}, err
	}
	query := endpoint.Query()
	query.Set("audience", to.Audiences[0])
	endpoint.RawQuery = query.Encode()
	ctx, cancel := context.WithTimeout(ctx, gitHubTimeout)
	defer cancel()
	token, err := f.askGitHub(ctx, endpoint)
	if err != nil {
		return Credential{}, fmt.Errorf("ask GitHub at %s for a token: %w", endpoint.Host, err)
	}
	return issuedFor(Credential{Secret: auth.NewSecret(token)}, nil, to.Audiences, "the token from GitHub")
}

// gitHubEndpoint returns the URL where the job requests its token. It refuses a URL that is not
// GitHub's.
func (f *Flags) gitHubEndpoint() (*url.URL, error) {
	raw := f.env(gitHubURL)
	if raw == "" || f.env(gitHubToken) == "" {
		return nil, fmt.Errorf("%s and %s are not set; "+
			"give the job \"permissions: id-token: write\" (a pull request of a fork never has it)", gitHubURL, gitHubToken)
	}
	endpoint, err := url.Parse(raw)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s is not a URL", gitHubURL)
	case endpoint.Scheme != "https":
		return nil, fmt.Errorf("%s does not begin with https://: the job's token would be sent without TLS", gitHubURL)
	case endpoint.User != nil:
		return nil, fmt.Errorf("%s has user information, which is not GitHub's", gitHubURL)
	case !isGitHub(endpoint.Host, f.env(gitHubServer)):
		return nil, fmt.Errorf("%s leads to %.80q, which is neither GitHub's nor the host of %s: the job's token does not go there",
			gitHubURL, endpoint.Host, gitHubServer)
	}
	return endpoint, nil
}

// isGitHub reports whether jobs may get their tokens from a host[:port]. The host must belong to
// one of these:
//   - github.com
//   - the job's GitHub Enterprise Cloud with data residency (SUBDOMAIN.ghe.com)
//   - the job's GitHub Enterprise Server
//
// Source: GitHub, "Self-hosted runners reference", "Accessible domains by function"; "Network
// details for GHE.com".
func isGitHub(host, server string) bool {
	host = lowerHost(host)
	if strings.HasSuffix(host, ".actions.githubusercontent.com") {
		return true
	}
	u, err := url.Parse(server)
	if err != nil || u.Scheme != "https" || u.Host == "" {
		return false
	}
	own := lowerHost(u.Host)
	return host == own || strings.HasSuffix(own, ".ghe.com") && strings.HasSuffix(host, ".actions."+own)
}

// askGitHub requests the token, up to three times. Its errors quote nothing of the answer.
func (f *Flags) askGitHub(ctx context.Context, endpoint *url.URL) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, endpoint.String(), nil)
	if err != nil {
		return "", errors.New("the address is not a URL")
	}
	request.Header.Set("Authorization", "Bearer "+f.env(gitHubToken))
	request.Header.Set("Accept", "application/json")
	answer, err := attempt.RoundTrip(f.transport, request) // RoundTrip follows no redirect
	if err != nil {
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		failure := attempt.Explain(err)
		return "", fmt.Errorf("%w; %s", failure, failure.Fix(attempt.Side{Name: "GitHub"}))
	}
	defer answer.Body.Close() //nolint:errcheck // read only
	switch {
	case answer.StatusCode == http.StatusUnauthorized || answer.StatusCode == http.StatusForbidden:
		return "", fmt.Errorf("HTTP status %d: the job's own token is not accepted; "+
			"it ends with the job, so do not keep it for another one", answer.StatusCode)
	case answer.StatusCode != http.StatusOK:
		return "", fmt.Errorf("HTTP status %d; run the job again, and see www.githubstatus.com", answer.StatusCode)
	}
	var said struct {
		Value string `json:"value"`
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, 2*maxToken))
	if err != nil {
		return "", errors.New("the answer broke off")
	}
	if json.Unmarshal(body, &said) != nil || said.Value == "" {
		return "", errors.New("the answer has no token")
	}
	return said.Value, nil
}

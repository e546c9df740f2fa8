package delivery

import (
	"encoding/base64"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/lanyard-dev/lanyard/auth/endpoint"
)

// credentialsKey is the key of the AWS credentials file.
const credentialsKey = "credentials"

// renderSession renders the keys of a session in two forms: as an AWS credentials file, which a
// running client can read again, and as environment variables. Source: AWS SDKs and Tools Reference
// Guide, "AWS access keys"; botocore, AWS_CREDENTIAL_EXPIRATION.
func renderSession(s *Session) (map[string][]byte, error) {
	if s == nil {
		return nil, &Error{"session", "is missing", "exchange the identity's token at AWS first"}
	}
	id, secret, token := s.AccessKeyID.Reveal(), s.SecretAccessKey.Reveal(), s.SessionToken.Reveal()
	settings := []setting{{"aws_access_key_id", id}, {"aws_secret_access_key", secret}, {"aws_session_token", token}}
	for _, key := range settings {
		if !matches(`[A-Za-z0-9+/=_-]+`, key.value) { // quotes and ; are special in the file
			return nil, &Error{"session." + key.name, "has a character that no key of AWS has", "check which server answers as AWS STS"}
		}
	}
	if s.ExpiresAt.IsZero() {
		return nil, &Error{"session.expiresAt", "is missing", "check which server answers as AWS STS"}
	}
	data := map[string][]byte{
		"AWS_ACCESS_KEY_ID": []byte(id), "AWS_SECRET_ACCESS_KEY": []byte(secret), "AWS_SESSION_TOKEN": []byte(token),
		"AWS_CREDENTIAL_EXPIRATION": []byte(s.ExpiresAt.UTC().Format(time.RFC3339)),
	}
	if s.Region != "" {
		if _, err := endpoint.ParseAWSRegion(s.Region); err != nil {
			return nil, &Error{configField + ".region", err.Error(), "correct the field of the WorkloadIdentity"}
		}
		data["AWS_REGION"] = []byte(s.Region)
		settings = append(settings, setting{"region", s.Region})
	}
	data[credentialsKey] = profile(settings)
	return data, nil
}

// dockerAuth is one login in a Docker configuration file. Source: Kubernetes, "Pull an image from a
// private registry". The field auth is for clients that read only this field.
type dockerAuth struct {
	Username string `json:"username"`
	Password string `json:"password"`
	Auth     string `json:"auth"`
}

// renderLogins renders a Docker configuration file. A registry with one login has one entry for its
// host, and every client understands this entry. A registry with several logins has an entry for
// each repository. Kubelets and the tools of containers/image understand these entries.
func renderLogins(logins []Login) (map[string][]byte, error) {
	if len(logins) == 0 {
		return nil, &Error{imagesField, "has no repository", "name the repositories to pull from"}
	}
	byHost, seen := map[string]map[dockerAuth][]string{}, map[string]bool{}
	for _, login := range logins {
		entry, err := login.entry()
		if err != nil {
			return nil, err
		}
		if seen[login.Repository] {
			return nil, &Error{imagesField, login.Repository + " stands there twice", "remove one"}
		}
		seen[login.Repository] = true
		host, _, _ := strings.Cut(login.Repository, "/")
		if byHost[host] == nil {
			byHost[host] = map[dockerAuth][]string{}
		}
		byHost[host][entry] = append(byHost[host][entry], login.Repository)
	}
	auths := map[string]dockerAuth{}
	for host, entries := range byHost {
		for entry, repositories := range entries {
			if len(entries) == 1 {
				repositories = []string{host}
			}
			for _, repository := range repositories {
				auths[repository] = entry
			}
		}
	}
	return map[string][]byte{corev1.DockerConfigJsonKey: encode(map[string]any{"auths": auths})}, nil
}

const imagesField = "spec.store.images"

// entry checks a login and returns its entry. The user name must not have a colon. Source: RFC
// 7617, section 2.
func (l Login) entry() (dockerAuth, error) {
	const registry = "check which server answers as the registry"
	if !matches(`[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?(:[0-9]{1,5})?(/[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*)+`, l.Repository) {
		return dockerAuth{}, &Error{
			imagesField, "a repository is not <host>/<path> in lower case", "write the repository without scheme, tag and digest",
		}
	}
	if l.Credentials == nil {
		return dockerAuth{}, &Error{imagesField, "there is no login for " + l.Repository, registry}
	}
	user, password := l.Credentials.Username, l.Credentials.Password.Reveal()
	if !matches(`[!-9;-~]{1,255}`, user) {
		return dockerAuth{}, &Error{
			imagesField, "the user for " + l.Repository + " is not printable ASCII without space and colon", registry,
		}
	}
	if !matches(`[!-~]+`, password) {
		return dockerAuth{}, &Error{imagesField, "the password for " + l.Repository + " is not printable ASCII without space", registry}
	}
	return dockerAuth{Username: user, Password: password, Auth: base64.StdEncoding.EncodeToString([]byte(user + ":" + password))}, nil
}

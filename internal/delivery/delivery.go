package delivery

import (
	"fmt"
	"regexp"
	"time"

	corev1 "k8s.io/api/core/v1"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
)

// Keys of the Secret's data. Every format that contains a token has both keys.
const (
	// TokenKey is the key of the token, a JWT without a line end.
	TokenKey = "workloadIdentityToken"
	// ConfigKey is the key of the identity's providerConfig. The value is JSON. If the identity has
	// no providerConfig, the value is "{}".
	ConfigKey = "workloadIdentityConfig"
)

// DefaultMountPath is the folder in which consumers mount the Secret, unless the binding sets
// another folder.
const DefaultMountPath = "/var/run/secrets/lanyard.dev/workload-identity"

// Input has the values from which [Render] makes the content of a Secret.
type Input struct {
	// Format decides which of the other fields are read.
	Format identityv1.StoreFormat
	// Target is the identity's targetSystem. It is used in formats that contain a token.
	Target identityv1.TargetSystem
	// Token is the JWT. It is required for formats that contain a token.
	Token auth.Secret
	// MountPath is the folder in which consumers find the Secret's files: an absolute path. Empty
	// means DefaultMountPath. Rendered files refer to each other by paths in this folder.
	MountPath string
	// Session are the keys for the format aws-session-keys; nil for other formats.
	Session *Session
	// Logins are the logins for the format dockerconfigjson, at least one; nil for other formats.
	Logins []Login
}

// Session are the keys of a session at AWS.
type Session struct {
	// AccessKeyID, SecretAccessKey and SessionToken are the keys. All are required.
	AccessKeyID, SecretAccessKey, SessionToken auth.Secret
	// ExpiresAt is the end of the session, UTC. Required.
	ExpiresAt time.Time
	// Region is the default region of clients; empty if clients are to choose.
	Region string
}

// Login is a user and a password for a repository of images.
type Login struct {
	// Repository is the repository without tag, <host>[:<port>]/<path>.
	Repository string
	// Credentials has the user and the password. Required.
	Credentials *auth.RegistryCredentials
}

// Content is the content of a Secret.
type Content struct {
	// Type is the Secret's type: Opaque or kubernetes.io/dockerconfigjson.
	Type corev1.SecretType
	// Data has all keys that Lanyard writes, with their values. The same input makes the same
	// bytes.
	Data map[string][]byte
}

// Error says which field of a binding or its identity cannot be rendered, and how to correct the
// field. It never contains a secret.
type Error struct {
	// Field is the path of the field, such as "spec.targetSystem.providerConfig.iamRoleARN" of the
	// identity or "spec.store.mountPath" of the binding. If the token or the session is wrong,
	// Field names the wrong value, such as "token" or "session.expiresAt".
	Field string
	// Detail is what is wrong.
	Detail string
	// Fix says what to do.
	Fix string
}

// Error joins the three parts.
func (e *Error) Error() string { return e.Field + ": " + e.Detail + ": " + e.Fix }

// Exchanged reports whether a format contains an exchanged credential instead of the token.
func Exchanged(format identityv1.StoreFormat) bool {
	return format == identityv1.StoreDockerConfigJSON || format == identityv1.StoreAWSSessionKeys
}

// SecretType returns the type of a Secret in a format.
func SecretType(format identityv1.StoreFormat) corev1.SecretType {
	if format == identityv1.StoreDockerConfigJSON {
		return corev1.SecretTypeDockerConfigJson
	}
	return corev1.SecretTypeOpaque
}

// Render returns the content of a Secret. Its errors are [*Error].
func Render(in Input) (Content, error) {
	content := Content{Type: SecretType(in.Format)}
	var err error
	switch in.Format {
	case identityv1.StoreToken:
		content.Data, err = renderToken(in, nil)
	case identityv1.StoreSDK:
		content.Data, err = renderToken(in, clientOf(in.Target.Type))
	case identityv1.StoreDockerConfigJSON:
		content.Data, err = renderLogins(in.Logins)
	case identityv1.StoreAWSSessionKeys:
		content.Data, err = renderSession(in.Session)
	default:
		err = &Error{
			"spec.store.format", fmt.Sprintf("%.80q is unknown", in.Format), "write sdk, token, dockerconfigjson or aws-session-keys",
		}
	}
	if err == nil {
		err = content.checkSize()
	}
	if err != nil {
		return Content{}, err
	}
	return content, nil
}

// checkSize returns an error if the API server would refuse the Secret for its size. Source:
// Kubernetes, core/v1, MaxSecretSize.
func (c Content) checkSize() error {
	size := 0
	for _, value := range c.Data {
		size += len(value)
	}
	if size <= corev1.MaxSecretSize {
		return nil
	}
	return &Error{
		"spec.targetSystem.providerConfig", fmt.Sprintf("the Secret would have %d bytes, and may have %d", size, corev1.MaxSecretSize),
		"shorten the providerConfig of the WorkloadIdentity",
	}
}

// matches reports whether a regular expression matches the whole text.
func matches(form, text string) bool {
	return regexp.MustCompile(`\A(?:` + form + `)\z`).MatchString(text)
}

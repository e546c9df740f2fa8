package spec

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
)

// The fields of spec.credential.
const (
	fieldCredential = "spec.credential" //nolint:gosec // the path of a field, no credential
	fieldType       = "spec.credential.type"
	fieldAudiences  = "spec.credential.audiences"
)

// CredentialType is the value of spec.credential.type. It says which proof the controller shows to
// the server.
type CredentialType string

// The types of spec.credential.
const (
	// ServiceAccountToken is a token of a ServiceAccount, issued by the cluster.
	ServiceAccountToken CredentialType = "ServiceAccountToken"
	// WorkloadIdentityToken is a token of a WorkloadIdentity, issued by Lanyard.
	WorkloadIdentityToken CredentialType = "WorkloadIdentityToken"
	// SpiffeJWT is a JWT-SVID of the object itself.
	SpiffeJWT CredentialType = "SpiffeJWT"
	// SpiffeCertificate is an X.509-SVID of the object itself, for TLS.
	SpiffeCertificate CredentialType = "SpiffeCertificate"
)

// CredentialTypes returns all types.
func CredentialTypes() []CredentialType {
	return []CredentialType{ServiceAccountToken, WorkloadIdentityToken, SpiffeJWT, SpiffeCertificate}
}

// SPIFFE reports whether the credential is an SVID, whose subject is the object itself.
func (t CredentialType) SPIFFE() bool { return t == SpiffeJWT || t == SpiffeCertificate }

// Credential is spec.credential: the proof that the controller shows to the server at
// [Fields].Address.
type Credential struct {
	// Type is the type of the credential. Required.
	Type CredentialType
	// Audiences are the audiences of a token. Default: [Fields].Address.
	Audiences []string
}

// credentialType returns the type of spec.credential, or an empty string if the field is absent.
func (f Fields) credentialType() CredentialType {
	if f.Credential == nil {
		return ""
	}
	return f.Credential.Type
}

// Bounds of spec.credential.audiences, the same as in the schema.
const (
	maxAudiences = 16
	maxAudience  = 255 // bytes
)

// checkCredential refuses an unknown type and malformed audiences.
func checkCredential(c *Credential) error {
	switch {
	case c == nil:
		return nil
	case c.Type == "":
		return refuse(auth.CodeOptionInvalid, fieldType, "Required value: type is the type of the credential", fixType())
	case !slices.Contains(CredentialTypes(), c.Type):
		return refuse(auth.CodeOptionInvalid, fieldType, fmt.Sprintf("Unsupported value: %.80q", c.Type), fixType())
	}
	return checkAudiences(fieldAudiences, c.Audiences)
}

// checkAudiences refuses malformed audiences. Errors name the given field.
func checkAudiences(field string, audiences []string) error {
	if len(audiences) > maxAudiences {
		return refuse(auth.CodeOptionInvalid, field, fmt.Sprintf("Too many: must have at most %d items", maxAudiences), "remove some")
	}
	for i, audience := range audiences {
		at := fmt.Sprintf("%s[%d]", field, i)
		switch {
		case audience == "" || strings.ContainsFunc(audience, func(r rune) bool { return r <= ' ' || r > '~' }):
			return refuse(auth.CodeOptionInvalid, at, "an audience must have only printable ASCII characters and no space",
				"write a name such as registry.example.com")
		case len(audience) > maxAudience:
			return refuse(auth.CodeOptionInvalid, at, fmt.Sprintf("Too long: may not be more than %d bytes", maxAudience), "shorten it")
		case slices.Contains(audiences[:i], audience):
			return refuse(auth.CodeOptionInvalid, at, fmt.Sprintf("Duplicate value: %q", audience), "name each audience once")
		}
	}
	return nil
}

func fixType() string { return "write one of " + listed(CredentialTypes()) }

// listed returns names with commas between them.
func listed[T ~string](names []T) string {
	texts := make([]string, len(names))
	for i, name := range names {
		texts[i] = string(name)
	}
	return strings.Join(texts, ", ")
}

// audiencesOf returns the audiences of the object's token. The tenant chooses the server that gets
// the token. This server must not be able to exchange the token at a cloud, for example at AWS STS.
// So audiencesOf refuses an audience that a cloud's token service accepts. An audience of the
// cluster's API server must be refused too, but audiencesOf does not know these audiences. When the
// token is requested, the [auth.Prover] or Lanyard's token server refuses them.
func audiencesOf(fields Fields) (auth.List, error) {
	if fields.Credential.Type == SpiffeCertificate {
		return auth.List{}, nil
	}
	audiences := fields.Credential.Audiences
	if len(audiences) == 0 {
		audiences = []string{fields.Address}
	}
	if err := refuseExchanges(fieldAudiences, audiences); err != nil {
		return auth.List{}, err
	}
	list, err := auth.NewList(audiences...)
	if err != nil {
		return auth.List{}, refuse(auth.CodeOptionInvalid, fieldAudiences,
			"there is no audience, and the object has no address to take in its place", "name the audience")
	}
	return list, nil
}

// refuseExchanges refuses audiences that a cloud's token service accepts. A server that gets a
// token for such an audience could exchange the token there.
func refuseExchanges(field string, audiences []string) error {
	for _, audience := range audiences {
		if service := endpoint.ExchangeOf(audience); service != "" {
			return refuse(auth.CodeAudienceRefused, field,
				fmt.Sprintf("a token for audience %.80q would be valid at %s, and the server that gets the token could use it there",
					audience, service),
				"name the server by an audience of its own, such as its host")
		}
	}
	return nil
}

// CheckAudiences checks the audiences of a token that a server gets without an exchange. As in
// spec.credential.audiences, each audience must be well formed. An audience that a cloud's token
// service accepts is refused, because the server could exchange the token there. The error is an
// [*auth.Error] with a [*Refusal] of the given field. The field may be a command-line flag.
func CheckAudiences(field string, audiences []string) error {
	if err := checkAudiences(field, audiences); err != nil {
		return err
	}
	return refuseExchanges(field, audiences)
}

// objectOf returns the object itself as the subject of its SVIDs.
func objectOf(fields Fields, rules Rules) (auth.Subject, error) {
	if !rules.TokenServer && !rules.SPIFFEBroker {
		return auth.Subject{}, refuse(auth.CodeNotGranted, fieldType,
			"the controller runs without --keyring-namespace and --spiffe-broker-endpoint, so nobody can issue SVIDs",
			"have the administrator set spiffe.trustDomain or spiffe.broker of the Helm chart (--spiffe-trust-domain of "+
				"lanyard-token-server, or --spiffe-broker-endpoint of the controller), or use credential.type ServiceAccountToken")
	}
	object, err := auth.Object(fields.Kind, fields.Namespace, fields.Name)
	if err != nil {
		return auth.Subject{}, refuse(auth.CodeSubjectInvalid, "metadata.name", fmt.Sprintf("Invalid value: %.80q", fields.Name),
			"give the object a name that is a lower-case DNS-1123 subdomain")
	}
	return object, nil
}

// checkCredentialHost checks which server gets the controller's own token as the credential. It
// refuses a server that is not in Rules.CredentialHosts.
func checkCredentialHost(fields Fields, rules Rules) error {
	_, rest, found := strings.Cut(fields.Address, "://")
	if !found {
		rest = fields.Address
	}
	host, _, _ := strings.Cut(rest, "/")
	if fields.Credential == nil || rules.CredentialHosts.Contains(host) {
		return nil
	}
	return refuse(auth.CodeNotGranted, fieldAccount,
		fmt.Sprintf("no ServiceAccount is named, and the controller's own token does not go to %.80q", host),
		"set spec.serviceAccountName, or have the administrator list the host in --controller-credential-hosts "+
			"(identity.controllerCredentialHosts of the Helm chart)")
}

package issuer

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"regexp"

	"k8s.io/apimachinery/pkg/util/validation/field"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
)

// maxProviderConfig is the maximum size of a providerConfig's JSON, in bytes. It leaves room for
// a certificateAuthorityData of maxAuthority bytes.
const maxProviderConfig = 72 << 10

// ProviderConfig returns the fields of a target's providerConfig, or the errors in them. Each field
// must be known, and its value must be a string of the required form. A malformed value could make
// a client of the target send a token to the wrong place. It could also add a setting to the
// client's configuration file. The map is nil if the target has no providerConfig. It is also nil
// for a type whose providerConfig is not checked.
func ProviderConfig(target *identityv1.TargetSystem, at *field.Path) (map[string]string, field.ErrorList) {
	if target.ProviderConfig != nil && len(target.ProviderConfig.Raw) > maxProviderConfig {
		return nil, field.ErrorList{field.TooLong(at, "", maxProviderConfig)}
	}
	known := configFields(target.Type)
	if known == nil || target.ProviderConfig == nil {
		return nil, nil
	}
	var config map[string]any
	if err := json.Unmarshal(target.ProviderConfig.Raw, &config); err != nil {
		return nil, field.ErrorList{field.Invalid(at, "", "must be an object")}
	}
	var errs field.ErrorList
	for _, name := range sorted(known) {
		if _, present := config[name]; !present && known[name].required {
			errs = append(errs, field.Required(at.Child(name), "the identity at "+target.Type+" needs it"))
		}
	}
	known["apiVersion"], known["kind"] = configField{check: checkWord}, configField{check: checkWord} // allowed, but not used
	fields := make(map[string]string, len(config))
	for _, name := range sorted(config) {
		at := at.Child(name)
		known, ok := known[name]
		if !ok {
			errs = append(errs, field.Forbidden(at, "is not a field of targetSystem.type "+target.Type))
			continue
		}
		value, ok := config[name].(string)
		if !ok {
			errs = append(errs, field.TypeInvalid(at, "", "must be a string"))
			continue
		}
		if err := known.check(value); err != nil {
			// Leave out the value: err may already quote it.
			errs = append(errs, field.Invalid(at, "", err.Error()))
		}
		fields[name] = value
	}
	if len(errs) > 0 {
		return nil, errs
	}
	return fields, nil
}

// configField is one field of a target's providerConfig.
type configField struct {
	required bool
	check    func(string) error
}

// configFields returns the fields that a target's providerConfig may have; nil for a target whose
// providerConfig is not checked. config/admission/workloadidentities.yaml has the same fields.
func configFields(target string) map[string]configField {
	switch target {
	case identityv1.TargetAWS:
		return map[string]configField{
			"iamRoleARN": {required: true, check: parsed(endpoint.ParseRoleARN)},
			"assumeRole": {check: parsed(endpoint.ParseAssumption)},
			"region":     {check: parsed(endpoint.ParseAWSRegion)},
		}
	case identityv1.TargetAzure:
		return map[string]configField{
			"clientID":       {required: true, check: parsed(endpoint.ParseGUID)},
			"tenantID":       {required: true, check: parsed(endpoint.ParseGUID)},
			"subscriptionID": {check: parsed(endpoint.ParseGUID)},
		}
	case identityv1.TargetGCP:
		return map[string]configField{
			"workloadIdentityProvider": {required: true, check: parsed(endpoint.ParseGCPWorkloadProvider)},
			"serviceAccountEmail":      {check: parsed(endpoint.ParseGCPServiceAccount)},
			"impersonate":              {check: parsed(endpoint.ParseGCPImpersonation)},
			"projectID":                {check: checkProject},
		}
	case identityv1.TargetAlibaba:
		return map[string]configField{
			"roleARN":         {required: true, check: like(alibabaRole, "write acs:ram::<account>:role/<name>")},
			"oidcProviderARN": {required: true, check: like(alibabaProvider, "write acs:ram::<account>:oidc-provider/<name>")},
		}
	case identityv1.TargetVault:
		return map[string]configField{
			"address": {required: true, check: like(vaultAddress, "write https://<host>[:<port>], in lower case")},
			"mount":   {required: true, check: like(vaultMount, "write the path of the auth method without auth/, such as jwt")},
			"role":    {required: true, check: like(vaultRole, "write the name of a role of the auth method")},
		}
	case identityv1.TargetKubernetes:
		return map[string]configField{
			"server": {
				required: true, check: like(kubernetesServer, "write https://<host>[:<port>][/<path>], the host in lower case"),
			},
			"certificateAuthorityData": {check: checkAuthority},
		}
	default:
		return nil
	}
}

// Patterns of fields.
const (
	// Source: Alibaba Cloud RAM, CreateRole and CreateOIDCProvider. An account's ID has 16 digits
	// today; the patterns also allow other lengths.
	alibabaRole     = `^acs:ram::[0-9]{5,20}:role/[A-Za-z0-9.-]{1,64}$`
	alibabaProvider = `^acs:ram::[0-9]{5,20}:oidc-provider/[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`
	// A host is a DNS name, an IPv4 address, or an IPv6 address in brackets.
	httpsHost    = `https://([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?|\[[0-9a-f:.]{2,45}\])(:[1-9][0-9]{0,4})?`
	vaultAddress = `^` + httpsHost + `$`
	// Source: Vault, "Auth methods: enable"; a mount may have several segments.
	vaultMount       = `^[A-Za-z0-9_-]{1,64}(/[A-Za-z0-9_-]{1,64}){0,7}$`
	vaultRole        = `^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`
	kubernetesServer = `^` + httpsHost + `(/[A-Za-z0-9._~-]{1,128}){0,7}$`
)

// like returns a function that checks whether a value matches a regular expression. The error for
// any other value tells people how to fix it.
func like(pattern, fix string) func(string) error {
	return func(s string) error {
		if regexp.MustCompile(pattern).MatchString(s) {
			return nil
		}
		return errors.New(fix)
	}
}

// parsed returns a function that reports the error of parsing a value, and discards the result.
func parsed[T any](parse func(string) (T, error)) func(string) error {
	return func(s string) error {
		_, err := parse(s)
		return err
	}
}

func checkWord(s string) error {
	if len(s) <= maxSubject && printable(s) {
		return nil
	}
	return fmt.Errorf("must have only printable ASCII characters and no space, at most %d", maxSubject)
}

// checkProject checks the ID of a Google Cloud project. Source: Google Cloud Resource Manager,
// "Creating and managing projects".
func checkProject(id string) error {
	if regexp.MustCompile(`^([a-z][-a-z0-9.]{0,61}[a-z0-9]:)?[a-z][-a-z0-9]{4,28}[a-z0-9]$`).MatchString(id) {
		return nil
	}
	return fmt.Errorf("%.80q is not the ID of a project", id)
}

// maxAuthority is the maximum size of a certificate bundle in base64, in bytes.
const maxAuthority = 64 << 10

// checkAuthority checks a certificate bundle: PEM in base64, as in a kubeconfig.
func checkAuthority(data string) error {
	const fix = "write PEM certificates in base64, as clusters[].cluster.certificate-authority-data of a kubeconfig has them"
	if len(data) > maxAuthority {
		return fmt.Errorf("has more than %d bytes", maxAuthority)
	}
	rest, err := base64.StdEncoding.Strict().DecodeString(data)
	if err != nil || !printable(data) { // printable refuses line ends, which DecodeString skips
		return errors.New(fix)
	}
	for n := 0; ; n++ {
		block, after := pem.Decode(rest)
		if block == nil && n > 0 && len(rest) == 0 {
			return nil
		}
		if block == nil || block.Type != "CERTIFICATE" {
			return errors.New(fix)
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return errors.New(fix)
		}
		rest = after
	}
}

package conversion

import (
	"regexp"
	"strings"

	yamlnode "go.yaml.in/yaml/v3"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
)

// configField is the path of the fields that differ from cloud to cloud.
const configField = "spec.targetSystem.providerConfig"

// changeProviderConfig replaces the fields of a providerConfig by Lanyard's. The old fields are
// those of Gardener's extensions for clouds and of Gardener's proposal GEP-26. The fields
// apiVersion and kind are dropped, because no program reads them. Only the providerConfigs of the
// targets AWS, Azure and Google Cloud are changed.
func (o *object) changeProviderConfig() {
	var known map[string]string
	switch text(o.root, "spec", "targetSystem", "type") {
	case identityv1.TargetAWS:
		known = map[string]string{"roleARN": "iamRoleARN", "iamRoleARN": "iamRoleARN"}
	case identityv1.TargetAzure:
		known = map[string]string{"clientID": "clientID", "tenantID": "tenantID", "subscriptionID": "subscriptionID"}
	case identityv1.TargetGCP:
		known = map[string]string{"projectID": "projectID"}
	default:
		return
	}
	config := get(o.root, "spec", "targetSystem", "providerConfig")
	if config == nil || config.Kind != yamlnode.MappingNode {
		return
	}
	remove(config, "apiVersion")
	remove(config, "kind")
	var changed []*yamlnode.Node
	for i := 0; i+1 < len(config.Content); i += 2 {
		key, value := config.Content[i], config.Content[i+1]
		at := configField + "." + key.Value
		switch to := known[key.Value]; {
		case key.Value == "credentialsConfig" && known["projectID"] != "" && value.Kind == yamlnode.MappingNode:
			changed = append(changed, o.changeCredentialsConfig(at, value)...)
		case to == "":
			o.refuse(at, "Lanyard has no such field for this target; remove it")
		case value.ShortTag() != "!!str":
			o.refuse(at, "must be a string; write it in quotes")
		case to != key.Value && get(config, to) != nil:
			o.refuse(at, "is the same as %s; remove one of the two", to)
		default:
			key.Value = to
			changed = append(changed, key, value)
		}
	}
	config.Content = changed
}

// impersonation matches the URL at which Google Cloud gives tokens of a service account.
var impersonation = regexp.MustCompile(
	`^https://iamcredentials\.googleapis\.com/v1/projects/-/serviceAccounts/([^/:]+):generateAccessToken$`)

// changeCredentialsConfig returns Lanyard's fields for the credential configuration of Google's
// libraries. For some fields of such a configuration, Lanyard always uses the same value. Any other
// value in one of these fields is an error.
func (o *object) changeCredentialsConfig(at string, config *yamlnode.Node) []*yamlnode.Node {
	written := map[string]string{ //nolint:gosec // URLs and names, which are public
		"type": "external_account", "universe_domain": "googleapis.com", "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
		"token_url": "https://sts.googleapis.com/v1/token",
	}
	var changed []*yamlnode.Node
	for i := 0; i+1 < len(config.Content); i += 2 {
		key, value := config.Content[i], config.Content[i+1]
		at := at + "." + key.Value
		account := impersonation.FindStringSubmatch(value.Value)
		switch {
		case value.ShortTag() != "!!str":
			o.refuse(at, "must be a string; write it in quotes")
		case key.Value == "audience":
			key.Value, value.Value = "workloadIdentityProvider", strings.TrimPrefix(value.Value, "//iam.googleapis.com/")
			changed = append(changed, key, value)
		case key.Value == "service_account_impersonation_url" && account != nil:
			key.Value, value.Value = "serviceAccountEmail", account[1]
			changed = append(changed, key, value)
		case key.Value == "service_account_impersonation_url":
			o.refuse(at,
				"is not the URL of a service account at googleapis.com; remove it, and write serviceAccountEmail after the conversion")
		case written[key.Value] == "":
			o.refuse(at, "Lanyard has no such field; remove it")
		case written[key.Value] != value.Value:
			o.refuse(at, "Lanyard uses only %s; remove the field if this is right", written[key.Value])
		}
	}
	return changed
}

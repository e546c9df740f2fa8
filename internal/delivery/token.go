package delivery

import (
	"cmp"
	"encoding/json"
	"maps"
	"path"

	"k8s.io/apimachinery/pkg/util/validation/field"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/issuer"
)

const (
	configField    = "spec.targetSystem.providerConfig"
	mountPathField = "spec.store.mountPath"
)

// client renders the environment variables and files that a target's SDK reads. The result maps the
// Secret's keys to their values. The fields come from a providerConfig that the issuer's rules have
// accepted.
type client func(fields map[string]string, files folder) (map[string][]byte, error)

// clientOf returns the client for a type of target; nil for a type that Lanyard does not know.
func clientOf(target string) client {
	switch target {
	case identityv1.TargetAWS:
		return renderAWS
	case identityv1.TargetAzure:
		return renderAzure
	case identityv1.TargetGCP:
		return renderGCP
	case identityv1.TargetAlibaba:
		return renderAlibaba
	case identityv1.TargetVault:
		return renderVault
	case identityv1.TargetKubernetes:
		return renderKubernetes
	default:
		return nil
	}
}

// folder is the folder in which a consumer mounts the Secret: each key becomes a file.
type folder struct {
	at    string
	token string // the content of the file TokenKey
}

// path returns the path of a key's file.
func (f folder) path(key string) string { return path.Join(f.at, key) }

// renderToken renders the token and the providerConfig. Unless render is nil, it adds the client's
// files and variables.
func renderToken(in Input, render client) (map[string][]byte, error) {
	files, err := open(in)
	if err != nil {
		return nil, err
	}
	fields, config, err := readConfig(&in.Target)
	if err != nil {
		return nil, err
	}
	data := map[string][]byte{TokenKey: []byte(files.token), ConfigKey: config}
	if render == nil {
		return data, nil
	}
	if fields == nil {
		return nil, &Error{
			configField, "is missing, and a client of " + in.Target.Type + " needs it",
			"add it to the WorkloadIdentity, or set spec.store.format of the binding to token",
		}
	}
	rendered, err := render(fields, files)
	if err != nil {
		return nil, err
	}
	maps.Copy(data, rendered)
	return data, nil
}

// open checks the mount path and the token. Both are written into the Secret's files, and these
// have several formats. So both may have only characters that need no escape in any of the formats.
// For the form of the token, see RFC 7515, section 3.1.
func open(in Input) (folder, error) {
	files := folder{at: cmp.Or(in.MountPath, DefaultMountPath), token: in.Token.Reveal()}
	if len(files.at) > maxMountPath || !matches(`(/[A-Za-z0-9_-][A-Za-z0-9._-]*)+`, files.at) {
		return folder{}, &Error{
			mountPathField, "is not an absolute path of letters, digits and ._-/", "write a path such as " + DefaultMountPath,
		}
	}
	if !matches(`[A-Za-z0-9_-]+[.][A-Za-z0-9_-]+[.][A-Za-z0-9_-]+`, files.token) {
		return folder{}, &Error{"token", "is not a JWT in compact form", "check which server answers for token.lanyard.dev"}
	}
	return files, nil
}

// maxMountPath is the maximum length of a mount path in bytes, as in the schema of the binding.
const maxMountPath = 255

// readConfig returns the fields of a providerConfig, and the whole providerConfig as JSON. For a
// target that Lanyard does not know, it returns no fields, and the JSON as the author wrote it.
func readConfig(target *identityv1.TargetSystem) (map[string]string, []byte, error) {
	fields, errs := issuer.ProviderConfig(target, field.NewPath("spec", "targetSystem", "providerConfig"))
	if len(errs) > 0 {
		return nil, nil, &Error{errs[0].Field, errs[0].Detail, "correct the field of the WorkloadIdentity"}
	}
	if fields != nil {
		return fields, encode(fields), nil
	}
	if target.ProviderConfig == nil {
		return nil, []byte("{}"), nil
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(target.ProviderConfig.Raw, &object); err != nil || object == nil {
		return nil, nil, &Error{configField, "is not an object", "correct the field of the WorkloadIdentity"}
	}
	return nil, target.ProviderConfig.Raw, nil
}

// encode returns a value as JSON. The value has only maps, structs and strings, which can always be
// encoded.
func encode(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // not reached: encoding/json can encode every string
	}
	return data
}

package identity

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
)

// secretType is the type of the Secrets that are read.
const secretType = v1alpha1.SecretTypeAWSStatic

// readKeys reads the static keys in a Secret. Each key has two spellings. A Secret that has both,
// with different values, is refused: its author could not know which value is used.
func readKeys(secret *corev1.Secret) keys {
	var read keys
	var errs [4]error
	read.accessKeyID, errs[0] = value(secret.Data, "accessKeyID", "AccessKeyID", true)
	read.secretAccessKey, errs[1] = value(secret.Data, "secretAccessKey", "SecretAccessKey", true)
	read.sessionToken, errs[2] = value(secret.Data, "sessionToken", "SessionToken", false)
	if secret.Type != secretType {
		errs[3] = fmt.Errorf("its type is not %s", secretType)
	}
	if read.refused = errors.Join(errs[:]...); read.refused != nil {
		return keys{refused: read.refused}
	}
	return read
}

// value returns the Secret's value for a key that is spelt as name or as other. Its errors contain
// no value of the Secret.
func value(data map[string][]byte, name, other string, required bool) (auth.Secret, error) {
	first, second := string(data[name]), string(data[other])
	switch {
	case first != "" && second != "" && first != second:
		return auth.Secret{}, fmt.Errorf("it has both %s and %s, with different values", name, other)
	case first == "":
		first = second
	}
	if first == "" && required {
		return auth.Secret{}, fmt.Errorf("it has no %s", name)
	}
	for i := range len(first) {
		if first[i] <= ' ' || first[i] >= 0x7f {
			return auth.Secret{}, fmt.Errorf("%s has a space, a line end or another character that no key of AWS has", name)
		}
	}
	return auth.NewSecret(first), nil
}

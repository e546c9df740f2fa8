package flags_test

import (
	"io"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/internal/tokenserver/flags"
)

// TestKeyStore checks that keys are in Secrets unless --key-store names AWS KMS.
func TestKeyStore(t *testing.T) {
	for _, tt := range []struct{ args, store, refused string }{
		{"", flags.KeysInSecrets, ""},
		{"--key-store=aws-kms --aws-region=eu-west-1", flags.KeysInAWSKMS, ""},
		{"--key-store=aws-kms", flags.KeysInAWSKMS, ""},
		{"--key-store=vault", "", "--key-store"},
		{"--aws-region=eu-west-1", "", "--aws-region"},
	} {
		args := append(strings.Fields(tt.args), "--issuer=https://issuer.example", "--namespace=lanyard-system", "--host=token.lanyard-system.svc")
		f, _, err := flags.Parse(args, "test", io.Discard)
		switch {
		case tt.refused != "" && (err == nil || !strings.Contains(err.Error(), tt.refused)):
			t.Errorf("%q: %v", tt.args, err)
		case tt.refused == "" && (err != nil || f.KeyStore != tt.store):
			t.Errorf("%q: %v, keys in %q", tt.args, err, f.KeyStore)
		}
	}
}

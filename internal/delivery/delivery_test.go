package delivery_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/internal/delivery"
	"github.com/lanyard-dev/lanyard/internal/golden"
	"github.com/lanyard-dev/lanyard/internal/issuer/issuertest"
)

// jwt has the form of a token.
const jwt = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.c2lnbmF0dXJl"

// input returns an Input with a token for a target, in the format sdk.
func input(target, config string) delivery.Input {
	in := delivery.Input{Format: identityv1.StoreSDK, Target: identityv1.TargetSystem{Type: target}, Token: auth.NewSecret(jwt)}
	if config != "" {
		in.Target.ProviderConfig = &runtime.RawExtension{Raw: []byte(config)}
	}
	return in
}

// authority returns the certificateAuthorityData in the row "kubernetes" of [issuertest.Rows].
func authority(tb testing.TB) string {
	tb.Helper()
	for _, row := range issuertest.Rows(tb) {
		if row.Name == "kubernetes" {
			target, _ := row.Spec["targetSystem"].(map[string]any)
			config, _ := target["providerConfig"].(map[string]any)
			return fmt.Sprint(config["certificateAuthorityData"])
		}
	}
	tb.Fatal("the table has no row for kubernetes")
	return ""
}

const (
	awsConfig     = `{"iamRoleARN":"arn:aws:iam::112233445566:role/team/dns","region":"eu-west-1"}`
	azureConfig   = `{"clientID":"d6e4fc00-c5b2-4a72-9f84-6a92e3f06b08","tenantID":"72f988bf-86f1-41af-91ab-2d7cd011db47","subscriptionID":"12345678-1234-1234-1234-123456789abc"}`
	gcpConfig     = `{"workloadIdentityProvider":"projects/123456/locations/global/workloadIdentityPools/pool/providers/lanyard","serviceAccountEmail":"puller@tenant-a.iam.gserviceaccount.com","projectID":"tenant-a"}`
	alibabaConfig = `{"roleARN":"acs:ram::1234567890123456:role/dns","oidcProviderARN":"acs:ram::1234567890123456:oidc-provider/lanyard"}`
	vaultConfig   = `{"address":"https://vault.example.com:8200","mount":"jwt","role":"dns"}`
)

func kubernetesConfig(tb testing.TB) string {
	tb.Helper()
	return fmt.Sprintf(`{"server":"https://api.example.com:6443","certificateAuthorityData":%q}`, authority(tb))
}

func session() *delivery.Session {
	return &delivery.Session{
		AccessKeyID: auth.NewSecret("ASIAEXAMPLE"), SecretAccessKey: auth.NewSecret("a/secret+key="), SessionToken: auth.NewSecret("IQoJ/token="),
		ExpiresAt: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC), Region: "eu-west-1",
	}
}

func login(repository, user, password string) delivery.Login {
	return delivery.Login{Repository: repository, Credentials: &auth.RegistryCredentials{Username: user, Password: auth.NewSecret(password)}}
}

// TestGolden compares the Secret of each format and target with a golden file.
func TestGolden(t *testing.T) {
	const ecr = "112233445566.dkr.ecr.eu-west-1.amazonaws.com/"
	token := input("aws", awsConfig)
	token.Format = identityv1.StoreToken
	mounted := input("gcp", `{"workloadIdentityProvider":"projects/123456/locations/global/workloadIdentityPools/pool/providers/lanyard"}`)
	mounted.MountPath = "/mnt/cloud"
	for name, in := range map[string]delivery.Input{
		"aws": input("aws", awsConfig), "azure": input("azure", azureConfig), "gcp": input("gcp", gcpConfig), "alibaba": input("alibaba", alibabaConfig),
		"vault": input("vault", vaultConfig), "kubernetes": input("kubernetes", kubernetesConfig(t)), "generic": input("foo", `{"b": 1, "a": [true]}`),
		"token": token, "mount-path": mounted,
		"aws-session-keys": {Format: identityv1.StoreAWSSessionKeys, Session: session()},
		"dockerconfigjson": {Format: identityv1.StoreDockerConfigJSON, Logins: []delivery.Login{
			login(ecr+"tenant-a/app", "AWS", "one"), login(ecr+"tenant-a/base", "AWS", "one"),
			login("tenanta.azurecr.io/app", "00000000-0000-0000-0000-000000000000", "two"), login("tenanta.azurecr.io/base", "00000000-0000-0000-0000-000000000000", "three"),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			content, err := delivery.Render(in)
			if err != nil {
				t.Fatal(err)
			}
			var got bytes.Buffer
			fmt.Fprintf(&got, "type: %s\n", content.Type)
			for _, key := range slices.Sorted(maps.Keys(content.Data)) {
				fmt.Fprintf(&got, "--- %s\n%s\n", key, content.Data[key])
			}
			golden.Compare(t, "testdata/"+name+".golden", got.Bytes())
		})
	}
}

// TestUnknownTargets asserts that the Secret for an unknown target has only the token and the
// identity's unchanged providerConfig.
func TestUnknownTargets(t *testing.T) {
	for _, target := range []string{"foo", "alicloud", "openstack", "aws-china", "k8s", "x"} {
		for config, want := range map[string]string{
			"":                        `{}`,
			`{}`:                      `{}`,
			`{"iamRoleARN": "a\nb"}`:  `{"iamRoleARN": "a\nb"}`,
			` { "z" : 1, "a" : {} } `: ` { "z" : 1, "a" : {} } `,
			`{"credential_source":"x","token_url":"https://evil.example.com"}`: `{"credential_source":"x","token_url":"https://evil.example.com"}`,
		} {
			for _, format := range []identityv1.StoreFormat{identityv1.StoreSDK, identityv1.StoreToken} {
				in := input(target, config)
				in.Format = format
				content, err := delivery.Render(in)
				if err != nil {
					t.Fatalf("%s %s: %v", target, config, err)
				}
				if len(content.Data) != 2 || string(content.Data[delivery.TokenKey]) != jwt || string(content.Data[delivery.ConfigKey]) != want || content.Type != corev1.SecretTypeOpaque {
					t.Errorf("%s %s %s: %s", target, format, config, content.Data)
				}
			}
		}
	}
}

// TestRefusals asserts that Render refuses values that clients could not read back. Each error must
// have the field and the fix, but no secret.
func TestRefusals(t *testing.T) {
	const at = "spec.targetSystem.providerConfig"
	with := func(in delivery.Input, change func(*delivery.Input)) delivery.Input {
		change(&in)
		return in
	}
	keys := func(change func(*delivery.Session)) delivery.Input {
		s := session()
		change(s)
		return delivery.Input{Format: identityv1.StoreAWSSessionKeys, Session: s}
	}
	images := func(logins ...delivery.Login) delivery.Input {
		return delivery.Input{Format: identityv1.StoreDockerConfigJSON, Logins: logins}
	}
	const repository = "registry.example.com/app"
	for name, tt := range map[string]struct {
		in    delivery.Input
		field string
	}{
		"no format":                 {with(input("aws", awsConfig), func(in *delivery.Input) { in.Format = "" }), "spec.store.format"},
		"no token":                  {with(input("aws", awsConfig), func(in *delivery.Input) { in.Token = auth.Secret{} }), "token"},
		"a token with a line":       {with(input("aws", awsConfig), func(in *delivery.Input) { in.Token = auth.NewSecret(jwt + "\nhush") }), "token"},
		"a relative mount path":     {with(input("aws", awsConfig), func(in *delivery.Input) { in.MountPath = "run/secrets" }), "spec.store.mountPath"},
		"a mount path with a line":  {with(input("aws", awsConfig), func(in *delivery.Input) { in.MountPath = "/a\ncredential_process=x" }), "spec.store.mountPath"},
		"a mount path that climbs":  {with(input("aws", awsConfig), func(in *delivery.Input) { in.MountPath = "/a/../b" }), "spec.store.mountPath"},
		"a mount path with a space": {with(input("aws", awsConfig), func(in *delivery.Input) { in.MountPath = "/a #b" }), "spec.store.mountPath"},
		"a long mount path":         {with(input("aws", awsConfig), func(in *delivery.Input) { in.MountPath = "/" + strings.Repeat("a", 255) }), "spec.store.mountPath"},
		"a chain of roles":          {input("aws", strings.Replace(awsConfig, `"region"`, `"assumeRole":"arn:aws:iam::222233334444:role/b","region"`, 1)), at + ".assumeRole"},
		"a chain of accounts":       {input("gcp", strings.Replace(gcpConfig, `"projectID"`, `"impersonate":"b@tenant-b.iam.gserviceaccount.com","projectID"`, 1)), at + ".impersonate"},
		"aws without config":        {input("aws", ""), at},
		"aws with null":             {input("aws", "null"), at + ".iamRoleARN"},
		"a list":                    {input("foo", "[]"), at},
		"null":                      {input("foo", "null"), at},
		"a huge config":             {input("foo", `{"a":"`+strings.Repeat("x", corev1.MaxSecretSize)+`"}`), at},
		"a universe that is unknown": {
			input("gcp", strings.Replace(gcpConfig, "tenant-a.iam", "tenant-a.unknown.iam", 1)), at + ".serviceAccountEmail",
		},
		"no session":               {delivery.Input{Format: identityv1.StoreAWSSessionKeys}, "session"},
		"a key with a line":        {keys(func(s *delivery.Session) { s.SecretAccessKey = auth.NewSecret("hush\nregion = x") }), "session.aws_secret_access_key"},
		"no session token":         {keys(func(s *delivery.Session) { s.SessionToken = auth.Secret{} }), "session.aws_session_token"},
		"a session without an end": {keys(func(s *delivery.Session) { s.ExpiresAt = time.Time{} }), "session.expiresAt"},
		"a region with a line":     {keys(func(s *delivery.Session) { s.Region = "eu-west-1\nx = y" }), at + ".region"},
		"no login":                 {images(), "spec.store.images"},
		"a login that is nil":      {images(delivery.Login{Repository: repository}), "spec.store.images"},
		"a repository with a line": {images(login(repository+"\n", "a", "hush")), "spec.store.images"},
		"a repository twice":       {images(login(repository, "a", "hush"), login(repository, "b", "hush")), "spec.store.images"},
		"a user with a colon":      {images(login(repository, "a:b", "hush")), "spec.store.images"},
		"a password with a line":   {images(login(repository, "a", "hush\n")), "spec.store.images"},
		"a user with a line":       {images(login(repository, "a\n", "hush")), "spec.store.images"},
	} {
		content, err := delivery.Render(tt.in)
		checkRefusal(t, name, content, err, tt.field)
	}
}

func checkRefusal(t *testing.T, name string, content delivery.Content, err error, field string) {
	t.Helper()
	refused, ok := errors.AsType[*delivery.Error](err)
	if !ok || refused.Field != field || refused.Detail == "" || refused.Fix == "" || content.Data != nil {
		t.Errorf("%s: %.1000v, %d keys; want an error about %s", name, err, len(content.Data), field)
		return
	}
	if strings.Contains(err.Error(), "hush") || strings.Contains(err.Error(), jwt) {
		t.Errorf("%s: the error has a secret: %v", name, err)
	}
}

// TestIdentitiesThatAreRefused asserts that Render refuses each providerConfig that the issuer
// refuses.
func TestIdentitiesThatAreRefused(t *testing.T) {
	refused := 0
	for _, row := range issuertest.Rows(t) {
		if !strings.HasPrefix(row.Field, "spec.targetSystem.providerConfig") || row.RefusedBy == issuertest.Schema {
			continue
		}
		refused++
		target := decode(t, row)
		for _, format := range []identityv1.StoreFormat{identityv1.StoreSDK, identityv1.StoreToken} {
			content, err := delivery.Render(delivery.Input{Format: format, Target: target, Token: auth.NewSecret(jwt)})
			checkRefusal(t, row.Name, content, err, row.Field)
		}
	}
	if refused < 40 {
		t.Errorf("only %d rows of the table are about providerConfig", refused)
	}
}

// TestControlCharacters checks that Render refuses characters that could end a line or a string, in
// every field of every target.
func TestControlCharacters(t *testing.T) {
	for target, config := range map[string]string{
		"aws": awsConfig, "azure": azureConfig, "gcp": gcpConfig, "alibaba": alibabaConfig, "vault": vaultConfig, "kubernetes": kubernetesConfig(t),
	} {
		for name, value := range fieldsOf(t, config) {
			for _, bad := range []string{"\n", "\r", "\x00", "\t", "\x1b", "\u2028", "\u0085", " ", "\"", "'", "`", ";", "#", "\\"} {
				for _, changed := range []string{bad + value, value + bad, value[:len(value)/2] + bad + value[len(value)/2:]} {
					fields := fieldsOf(t, config)
					fields[name] = changed
					content, err := delivery.Render(input(target, encode(t, fields)))
					checkRefusal(t, target+" "+name, content, err, "spec.targetSystem.providerConfig."+name)
				}
			}
		}
	}
}

package access_test

import (
	"context"
	"crypto"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/aws"
	"github.com/lanyard-dev/lanyard/auth/azure"
	"github.com/lanyard-dev/lanyard/auth/gcp"
	"github.com/lanyard-dev/lanyard/auth/spec"
	"github.com/lanyard-dev/lanyard/internal/controller/access"
	"github.com/lanyard-dev/lanyard/internal/controller/controllertest"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// TestUse checks which credential a server gets for each source of credentials. A server never gets
// a credential of a source that it does not accept.
func TestUse(t *testing.T) {
	w := newLoginWorld(t)
	w.access.Live = fake.NewClientBuilder().WithObjects(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: "keys"}, Data: map[string][]byte{"user": []byte("robot")},
	}, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: "empty"}}).Build()
	reader, err := auth.ServiceAccount("tenant-a", "reader")
	gone, goneErr := auth.ServiceAccount("tenant-a", "gone")
	must.Succeed(t, errors.Join(err, goneErr))
	all := access.Service{
		Name: "shop",
		ReadSecret: func(secret *corev1.Secret) (access.Credential, string, error) {
			if len(secret.Data) == 0 {
				return access.Credential{}, "set user", errors.New("it has no user")
			}
			return access.Credential{Basic: &access.Basic{User: string(secret.Data["user"])}}, "", nil
		},
		PullSecrets: func(context.Context, access.Call) (access.Login, error) {
			return access.StaticLogin("pull", access.Credential{}), nil
		},
		Purpose:  func(spec.Source) ([]auth.Option, bool) { return nil, true },
		Rejected: func(err error) bool { return errors.Is(err, errUnauthorized) },
	}
	few := all
	few.PullSecrets, few.Purpose = nil, func(spec.Source) ([]auth.Option, bool) { return nil, false }
	for name, test := range map[string]struct {
		identity spec.Identity
		service  access.Service
		subject  string // subject of the login's identity; empty for none
		user     string // user in the login's credential; empty for none
		minted   bool
		says     string // part of the error; empty for success
	}{
		"nobody":                   {spec.Identity{Source: spec.Anonymous}, all, "", "", false, ""},
		"a Secret":                 {spec.Identity{Source: spec.StaticSecret, SecretName: "keys"}, all, "secret:tenant-a:keys", "robot", false, ""},
		"a Secret of no use":       {spec.Identity{Source: spec.StaticSecret, SecretName: "empty"}, all, "", "", false, "it has no user; set user"},
		"a Secret that is missing": {spec.Identity{Source: spec.StaticSecret, SecretName: "gone"}, all, "", "", false, "does not exist"},
		"pull secrets":             {spec.Identity{Source: spec.PullSecrets}, all, "pull", "", false, ""},
		"a default account that is missing": {
			spec.Identity{Source: spec.Cloud, Provider: "aws", Subject: gone, Defaulted: true},
			all, "", "", false,
			"spec.serviceAccountName is not set, so --default-service-account applies",
		},
		"a cloud":                   {spec.Identity{Source: spec.Cloud, Provider: "aws", Subject: reader}, all, reader.String(), "", true, ""},
		"a token service":           {spec.Identity{Source: spec.STS, Provider: "aws", Subject: reader}, all, reader.String(), "", true, ""},
		"pull secrets, not taken":   {spec.Identity{Source: spec.PullSecrets}, few, "", "", false, `a shop does not take credentials of source "pull-secrets"`},
		"a cloud, not taken":        {spec.Identity{Source: spec.Cloud, Provider: "aws", Subject: reader}, few, "", "", false, `of source "cloud"`},
		"a proof, not taken":        {spec.Identity{Source: spec.Proof, Provider: "aws", Subject: reader}, few, "", "", false, `of source "proof"`},
		"a source that nobody made": {spec.Identity{Source: "other"}, all, "", "", false, `of source "other"`},
		"no source":                 {spec.Identity{}, all, "", "", false, `of source ""`},
	} {
		t.Run(name, func(t *testing.T) {
			call := access.Call{Object: auth.InvolvedObject{Namespace: "tenant-a"}, Identity: test.identity}
			conn, err := w.access.Connect(t.Context(), call, "service.example.com")
			must.Succeed(t, err)
			defer conn.Close()
			var got *access.Login
			err = w.access.Use(t.Context(), call, conn, &w.status, test.service, func(login access.Login) error {
				got = &login
				return nil
			})
			if test.says != "" {
				if err == nil || !strings.Contains(err.Error(), test.says) || got != nil {
					t.Errorf("%+v, %v, want %q", got, err, test.says)
				}
				_, ofSecret := errors.AsType[*object.SecretError](err)
				if ofSecret != (test.identity.Source == spec.StaticSecret) {
					t.Errorf("%T", err)
				}
				return
			}
			if err != nil || got == nil {
				t.Fatal(err)
			}
			subject, user := "", ""
			if got.Identity != nil {
				subject = got.Identity.Subject
			}
			if got.Credential.Basic != nil {
				user = got.Credential.Basic.User
			}
			_, minted := got.Token.(*controllertest.Session)
			if subject != test.subject || user != test.user || minted != test.minted {
				t.Errorf("%q with user %q, minted: %t", subject, user, minted)
			}
		})
	}
}

// TestBearer checks which credential a server gets for each sort of minted token. The server gets a
// bearer token only if the service's field Bearer lists the credential's source. It never gets
// keys with which an SDK signs.
func TestBearer(t *testing.T) {
	secret, ends := auth.NewSecret("a.jwt"), time.Now().Add(time.Hour)
	_, _, pair := credentials(t)
	for name, test := range map[string]struct {
		token  auth.Token
		always string // field of the credential that every server gets; empty for none
		// bearer is the bearer token that the server gets if the field Bearer of its access.Service
		// lists the credential's source. It is empty if no server gets a bearer token.
		bearer string
	}{
		"a registry's":   {&auth.RegistryCredentials{Username: "robot", Password: secret, ExpiresAt: ends}, "Basic", ""},
		"a certificate":  {auth.NewCertificate(pair.Certificate, pair.PrivateKey.(crypto.Signer), ends), "Certificate", ""},
		"a JWT":          {&auth.JWT{Token: secret, ExpiresAt: ends}, "", "a.jwt"},
		"Azure's":        {&azure.Token{Secret: secret, ExpiresAt: ends}, "", "a.jwt"},
		"Google Cloud's": {&gcp.Token{Secret: secret, ExpiresAt: ends}, "", "a.jwt"},
		"AWS's":          {&aws.Token{AccessKeyID: secret, SecretAccessKey: secret, SessionToken: secret, ExpiresAt: ends}, "", ""},
	} {
		for _, source := range []spec.Source{spec.Cloud, spec.STS, spec.Proof} {
			for _, takes := range [][]spec.Source{nil, {spec.Cloud}, {spec.STS, spec.Proof}} {
				w := newLoginWorld(t)
				w.cloud.Issue(test.token)
				reader, err := auth.ServiceAccount("tenant-a", "reader")
				must.Succeed(t, err)
				call := access.Call{Identity: spec.Identity{Source: source, Provider: "aws", Subject: reader}}
				conn, err := w.access.Connect(t.Context(), call, "service.example.com")
				must.Succeed(t, err)
				defer conn.Close()
				service := access.Service{
					Name: "shop", Bearer: takes, Purpose: func(spec.Source) ([]auth.Option, bool) { return nil, true },
					Rejected: func(error) bool { return false },
				}
				err = w.access.Use(t.Context(), call, conn, &w.status, service, func(login access.Login) error {
					shown, bearer := "", ""
					if login.Credential.Basic != nil {
						shown += "Basic"
					}
					if login.Credential.Certificate != nil {
						shown += "Certificate"
					}
					if slices.Contains(takes, source) {
						bearer = test.bearer
					}
					if got := login.Credential.Bearer.Reveal(); shown != test.always || got != bearer || login.Token != test.token {
						t.Errorf("%s of source %s, with bearers of %v: shows %q and bearer %q", name, source, takes, shown, got)
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		}
	}
}

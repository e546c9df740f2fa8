package access_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/spec"
	"github.com/lanyard-dev/lanyard/internal/controller/access"
	"github.com/lanyard-dev/lanyard/internal/controller/controllertest"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
)

// TestUse checks which credential a server gets for each source of credentials. A server never gets a
// credential of a source that it does not take.
func TestUse(t *testing.T) {
	w := newLoginWorld(t)
	w.access.Live = fake.NewClientBuilder().WithObjects(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: "keys"}, Data: map[string][]byte{"user": []byte("robot")},
	}, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: "empty"}}).Build()
	reader, err := auth.ServiceAccount("tenant-a", "reader")
	gone, goneErr := auth.ServiceAccount("tenant-a", "gone")
	if err := errors.Join(err, goneErr); err != nil {
		t.Fatal(err)
	}
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
		subject  string // of the login; empty for nobody
		user     string // of the credential
		minted   bool
		says     string // of a refusal
	}{
		"nobody":                   {spec.Identity{Source: spec.Anonymous}, all, "", "", false, ""},
		"a Secret":                 {spec.Identity{Source: spec.StaticSecret, SecretName: "keys"}, all, "secret:tenant-a:keys", "robot", false, ""},
		"a Secret of no use":       {spec.Identity{Source: spec.StaticSecret, SecretName: "empty"}, all, "", "", false, "it has no user; set user"},
		"a Secret that is missing": {spec.Identity{Source: spec.StaticSecret, SecretName: "gone"}, all, "", "", false, "does not exist"},
		"pull secrets":             {spec.Identity{Source: spec.PullSecrets}, all, "pull", "", false, ""},
		"a default account that is missing": {
			spec.Identity{Source: spec.Cloud, Provider: "aws", Subject: gone, Defaulted: true}, all, "", "", false,
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
			if err != nil {
				t.Fatal(err)
			}
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

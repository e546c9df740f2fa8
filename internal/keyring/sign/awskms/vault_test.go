package awskms_test

import (
	"context"
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/cloudtest/aws"
	"github.com/lanyard-dev/lanyard/cloudtest/fault"
	"github.com/lanyard-dev/lanyard/internal/keyring"
	"github.com/lanyard-dev/lanyard/internal/keyring/sign"
	"github.com/lanyard-dev/lanyard/internal/keyring/sign/awskms"
	"github.com/lanyard-dev/lanyard/internal/must"
)

func allowing(actions string) json.RawMessage {
	return json.RawMessage(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"` + actions + `","Resource":"*"}]}`)
}

// TestRing makes a ring whose keys are in KMS, with the IAM policy of the documentation. The ring's
// public keys must verify tokens of each algorithm. A revoked key must be deleted in KMS too.
func TestRing(t *testing.T) {
	policy := documentedPolicy(t, issuer)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, policy)
		algorithms := []v1alpha1.Algorithm{v1alpha1.RS256, v1alpha1.ES256, v1alpha1.ES384}
		store := sign.NewSecrets(w.object(), w.vault)
		rotator := w.rotator(store, algorithms...)
		w.settle(rotator)
		signer := sign.NewSigner(w.object(), store, noSkew, slog.New(slog.DiscardHandler))
		must.Succeed(t, signer.Refresh(t.Context()))
		ring, err := keyring.Parse(&w.ring().Status)
		must.Succeed(t, err)
		for _, algorithm := range algorithms {
			token, err := signer.JWT(algorithm, map[string]any{"sub": "x"}, time.Now().Add(time.Minute))
			must.Succeed(t, err)
			parsed, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.SignatureAlgorithm(algorithm)})
			must.Succeed(t, err)
			i := slices.IndexFunc(ring.Public(), func(k keyring.Key) bool { return k.ID == parsed.Headers[0].KeyID })
			var claims map[string]any
			if i < 0 || parsed.Claims(ring.Public()[i].Public, &claims) != nil || claims["sub"] != "x" {
				t.Errorf("%s: the ring's key %d does not verify the token", algorithm, i)
			}
		}
		if n := len(w.calls("Sign")); n != len(algorithms) {
			t.Errorf("%d calls of Sign for %d tokens", n, len(algorithms))
		}
		var secrets corev1.SecretList
		must.Succeed(t, w.api.List(t.Context(), &secrets))
		for _, s := range secrets.Items {
			if len(s.Data) != 1 || !strings.HasPrefix(string(s.Data["arn"]), "arn:aws:kms:"+region+":"+account+":key/") || s.Immutable == nil {
				t.Errorf("Secret %s has %q", s.Name, s.Data)
			}
		}

		active := ring.ActiveKeys()[0]
		revoked := w.ring()
		must.Succeed(t, keyring.Revoke(revoked, active.ID))
		must.Succeed(t, w.api.Update(t.Context(), revoked))
		w.settle(rotator)
		time.Sleep(2 * time.Hour)
		w.settle(rotator)
		if _, err := store.Open(t.Context(), active.ID); err == nil {
			t.Error("the revoked key can be opened")
		}
		if deleted := w.calls("ScheduleKeyDeletion"); len(deleted) == 0 || !deleted[0].Granted() {
			t.Errorf("the key was not deleted in KMS: %+v", deleted)
		}
	})
}

// TestOtherIssuersKeys asserts that the documented policy restricts the token server to the keys of
// its issuer. This must hold even if a Secret has the ARN of another key.
func TestOtherIssuersKeys(t *testing.T) {
	policy := documentedPolicy(t, issuer)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, allowing("kms:*"))
		theirs, _, err := w.newVault("https://other.example").Create(t.Context(), "uid", v1alpha1.ES256)
		must.Succeed(t, err)
		w.allow(policy)
		_, openErr := w.vault.Open(t.Context(), theirs)
		_, _, createErr := w.newVault("https://other.example").Create(t.Context(), "uid", v1alpha1.ES256)
		for what, err := range map[string]error{"open": openErr, "destroy": w.vault.Destroy(t.Context(), theirs), "create": createErr} {
			if refused, ok := errors.AsType[*awskms.Error](err); !ok || refused.Code != "AccessDeniedException" || refused.Fix == "" {
				t.Errorf("%s: %v", what, err)
			}
		}
		if _, _, err := w.vault.Create(t.Context(), "uid", v1alpha1.ES256); err != nil {
			t.Errorf("its own: %v", err)
		}
	})
}

// TestFailures asserts that calls fail in bounded time. The errors say what failed, what to do, and
// whether the key is gone.
func TestFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, allowing("kms:*"))
		data, private, err := w.vault.Create(t.Context(), "uid", v1alpha1.RS256)
		must.Succeed(t, err)
		digest := sha256.Sum256([]byte("message"))
		signs := func() error { _, err := private.Sign(nil, digest[:], crypto.SHA256); return err }
		opens := func() error { _, err := w.vault.Open(t.Context(), data); return err }
		broken := func(f fault.Fault) func() {
			return func() {
				f.Service = aws.ServiceKMS
				if _, err := w.cloud.Faults().Add(f); err != nil {
					t.Fatal(err)
				}
			}
		}
		for _, tt := range []struct {
			name   string
			do     func()
			call   func() error
			code   string
			detail string
			gone   bool
		}{
			{"nothing", func() {}, signs, "", "", false},
			{"throttled once", broken(fault.Fault{Kind: fault.Throttle, Count: 1}), signs, "", "", false},
			{"throttled", broken(fault.Fault{Kind: fault.Throttle}), signs, "ThrottlingException", "quota", false},
			{"internal failure", broken(fault.Fault{Kind: fault.InternalFailure}), signs, "KMSInternalException", "refused or failed", false},
			{"unavailable", broken(fault.Fault{Kind: fault.Unavailable}), opens, "DependencyTimeoutException", "refused or failed", false},
			{"slow", broken(fault.Fault{Kind: fault.Latency, Delay: time.Hour}), signs, "", "in time", false},
			{"no connection", broken(fault.Fault{Kind: fault.Drop}), signs, "", "did not answer", false},
			{"malformed", broken(fault.Fault{Kind: fault.Malformed}), signs, "", "did not answer", false},
			{"no right", func() { w.allow(allowing("kms:GetPublicKey")) }, signs, "AccessDeniedException", "may not", false},
			{"destroyed", func() {
				w.allow(allowing("kms:*"))
				if err := errors.Join(w.vault.Destroy(t.Context(), data), w.vault.Destroy(t.Context(), data)); err != nil {
					t.Error(err)
				}
			}, signs, "KMSInvalidStateException", "pending deletion", true},
			{"destroyed, opened", func() {}, opens, "KMSInvalidStateException", "pending deletion", true},
			{"deleted", func() { time.Sleep(31 * 24 * time.Hour) }, opens, "", "no AWS identity", false},
		} {
			tt.do()
			begin := time.Now()
			err := tt.call()
			if took := time.Since(begin); took > 11*time.Second {
				t.Errorf("%s took %v", tt.name, took)
			}
			w.cloud.Faults().Clear()
			if tt.detail == "" {
				if err != nil {
					t.Errorf("%s: %v", tt.name, err)
				}
				continue
			}
			failed, ok := errors.AsType[*awskms.Error](err)
			if !ok || failed.Code != tt.code || !strings.Contains(failed.Detail, tt.detail) || failed.Fix == "" || failed.Key != string(data["arn"]) || errors.Is(err, sign.ErrGone) != tt.gone {
				t.Errorf("%s: %v", tt.name, err)
			}
			if err != nil && (strings.Contains(err.Error(), "assumed-role") || strings.Contains(err.Error(), "Rate exceeded")) {
				t.Errorf("%s: the error has KMS's text: %v", tt.name, err)
			}
		}
		if _, ok := errors.AsType[*auth.Error](opens()); !ok {
			t.Error("the cause of a missing identity is not there")
		}
		if _, err := private.Sign(nil, digest[:], &rsa.PSSOptions{Hash: crypto.SHA256}); err == nil {
			t.Error("it signs by PSS")
		}
	})
}

// TestSecretsThatLeadNowhere opens and destroys keys whose Secrets have a wrong ARN. Open must
// return ErrGone, and Destroy must succeed.
func TestSecretsThatLeadNowhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, allowing("kms:*"))
		for _, arn := range []string{"", "x", "arn:aws:s3:::bucket", "arn:aws:kms:eu-west-1:123456789123:alias/x", "arn:aws:kms::123456789123:key/x", "arn:aws:kms:eu-west-1:123456789123:key/x"} {
			data := map[string][]byte{"arn": []byte(arn)}
			if _, err := w.vault.Open(t.Context(), data); !errors.Is(err, sign.ErrGone) {
				t.Errorf("%q: %v", arn, err)
			}
			if err := w.vault.Destroy(t.Context(), data); err != nil {
				t.Errorf("%q: destroy: %v", arn, err)
			}
		}
		if n := len(w.calls("GetPublicKey")); n != 1 {
			t.Errorf("%d calls of KMS; only one of these is an ARN of a key", n)
		}
	})
}

// TestMove asserts that keys in Secrets stay usable after the token server makes new keys in KMS.
// While KMS does not answer, the ring does not change.
func TestMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, allowing("kms:*"))
		before, after := sign.NewSecrets(w.object()), sign.NewSecrets(w.object(), w.vault)
		w.settle(w.rotator(before, v1alpha1.ES256))
		old := w.ring().Status.Keys[0].KID
		rotator := w.rotator(after, v1alpha1.ES256)
		w.settle(rotator)
		if _, err := after.Open(t.Context(), old); err != nil {
			t.Errorf("the key in a Secret: %v", err)
		}
		for range 4 { // long enough for several rotations
			time.Sleep(time.Hour)
			w.settle(rotator)
		}
		kept, err := after.List(t.Context())
		if err != nil || len(kept) == 0 {
			t.Fatalf("%v, %d keys", err, len(kept))
		}
		if readable, err := before.List(t.Context()); err != nil || len(readable) != 0 {
			t.Errorf("without KMS: %v, %d keys", err, len(readable))
		}
		ring := w.ring()
		if _, err := w.cloud.Faults().Add(fault.Fault{Kind: fault.Unavailable, Service: aws.ServiceKMS}); err != nil {
			t.Fatal(err)
		}
		if _, err := rotator.Step(t.Context()); err == nil || w.ring().ResourceVersion != ring.ResourceVersion {
			t.Errorf("while KMS does not answer: %v", err)
		}
	})
}

// TestUnrecordedKey asserts that a new key in KMS is destroyed if its Secret cannot be made.
func TestUnrecordedKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, allowing("kms:*"))
		full := errors.New("quota of Secrets")
		w.api = interceptor.NewClient(w.api, interceptor.Funcs{
			Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return full },
		})
		if _, err := sign.NewSecrets(w.object(), w.vault).Create(t.Context(), "uid", v1alpha1.ES256); !errors.Is(err, full) {
			t.Errorf("got %v", err)
		}
		created, deleted := w.calls("CreateKey"), w.calls("ScheduleKeyDeletion")
		if len(created) != 1 || len(deleted) != 1 || created[0].Resource != deleted[0].Resource {
			t.Errorf("created %+v, deleted %+v", created, deleted)
		}
	})
}

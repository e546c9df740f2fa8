package tokenserver_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/tokenserver"
)

// TestRingMetrics checks what a scrape says about a ring with an active and a pending key.
func TestRingMetrics(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := identityv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	at := func(seconds int64) *metav1.Time { return &metav1.Time{Time: time.Unix(seconds, 0)} }
	ring := &identityv1.KeyRing{
		ObjectMeta: metav1.ObjectMeta{Namespace: "lanyard-system", Name: "issuer"},
		Status: identityv1.KeyRingStatus{
			Conditions: []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue}, {Type: "CanRotate", Status: metav1.ConditionFalse}},
			Keys: []identityv1.RingKey{
				{KID: "a", Algorithm: identityv1.RS256, KeyLife: identityv1.KeyLife{
					State: identityv1.KeyActive, CreatedAt: *at(1000), PublishedAt: at(2000), ActivatedAt: at(3000),
				}},
				{KID: "b", Algorithm: identityv1.RS256, KeyLife: identityv1.KeyLife{State: identityv1.KeyPending, CreatedAt: *at(4000)}},
			},
		},
	}
	reader := fake.NewClientBuilder().WithScheme(scheme).WithObjects(ring).Build()
	log := slog.New(slog.DiscardHandler)
	metrics := tokenserver.NewRingMetrics(reader, []client.ObjectKey{client.ObjectKeyFromObject(ring)}, time.Hour, log)
	if err := testutil.CollectAndCompare(metrics, strings.NewReader(`
# HELP lanyard_keyring_condition 1 if the condition of the KeyRing is True, 0 otherwise.
# TYPE lanyard_keyring_condition gauge
lanyard_keyring_condition{ring="issuer",type="CanRotate"} 0
lanyard_keyring_condition{ring="issuer",type="Ready"} 1
# HELP lanyard_keyring_key_rotation_due_timestamp_seconds When the next key should replace an active key, in Unix time.
# TYPE lanyard_keyring_key_rotation_due_timestamp_seconds gauge
lanyard_keyring_key_rotation_due_timestamp_seconds{algorithm="RS256",kid="a",ring="issuer"} 6600
# HELP lanyard_keyring_key_state 1 for the state that a key is in.
# TYPE lanyard_keyring_key_state gauge
lanyard_keyring_key_state{algorithm="RS256",kid="a",ring="issuer",state="Active"} 1
lanyard_keyring_key_state{algorithm="RS256",kid="b",ring="issuer",state="Pending"} 1
# HELP lanyard_keyring_key_state_since_timestamp_seconds Since when a key is in its state, in Unix time.
# TYPE lanyard_keyring_key_state_since_timestamp_seconds gauge
lanyard_keyring_key_state_since_timestamp_seconds{algorithm="RS256",kid="a",ring="issuer",state="Active"} 3000
lanyard_keyring_key_state_since_timestamp_seconds{algorithm="RS256",kid="b",ring="issuer",state="Pending"} 4000
`)); err != nil {
		t.Error(err)
	}
	none := tokenserver.NewRingMetrics(reader, []client.ObjectKey{{Namespace: "lanyard-system", Name: "none"}}, time.Hour, log)
	if n := testutil.CollectAndCount(none); n != 0 {
		t.Errorf("%d metrics of a ring that there is not", n)
	}
}

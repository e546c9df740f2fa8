package main

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	tokenv1 "github.com/lanyard-dev/lanyard/api/token/v1alpha1"
	"github.com/lanyard-dev/lanyard/bench/internal/stage"
	ourissuer "github.com/lanyard-dev/lanyard/internal/issuer"
	"github.com/lanyard-dev/lanyard/internal/keyring"
	"github.com/lanyard-dev/lanyard/internal/keyring/sign"
	"github.com/lanyard-dev/lanyard/internal/local"
)

// Lanyard and kube-apiserver make tokens with one audience and a life of one hour. Both sign with
// RS256 and a key of 2048 bits.
const (
	audience    = "sts.amazonaws.com"
	tokenLife   = time.Hour
	kubePath    = "/api/v1/namespaces/" + namespace + "/serviceaccounts/" + account + "/token"
	kubeRequest = `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{"audiences":["` +
		audience + `"],"expirationSeconds":3600}}`
	ourPath    = "/apis/token.lanyard.dev/v1alpha1/namespaces/" + namespace + "/workloadidentities/" + account + "/token"
	ourRequest = `{"apiVersion":"token.lanyard.dev/v1alpha1","kind":"TokenRequest","spec":{"audiences":["` +
		audience + `"],"expirationSeconds":3600}}`
)

const (
	callers = 32
	// turn is how long one side, Lanyard or kube-apiserver, is asked for tokens. Then the other
	// side has its turn. pairs is the number of turns that each side has.
	turn  = time.Second
	pairs = 25
	// firstToken bounds the wait for the first token, which cannot be signed until the keys are
	// published.
	firstToken = 2 * time.Minute
)

// mint measures Lanyard's token server beside the API server's own TokenRequest. The cluster runs
// lanyard-token-server and lanyard-discovery. All requests go through the API server, as the same
// ServiceAccount.
func mint(ctx context.Context, s settings) (results []result, err error) {
	err = stage.Run(ctx, s.programs, func(*local.CloudOptions) {}, func(w *stage.World) error {
		if err := w.InstallChart(ctx, local.WithIssuer([]string{namespace}, nil)); err != nil {
			return err
		}
		programs := []local.ProgramOptions{program(w, "lanyard-token-server"), program(w, "lanyard-discovery")}
		if err := w.StartPrograms(ctx, programs, func(*local.Program) {}); err != nil {
			return err
		}
		caller, err := newCaller(ctx, w)
		if err != nil {
			return err
		}
		defer caller.CloseIdleConnections()
		through, err := throughAPIServer(ctx, w, caller)
		if err != nil {
			return err
		}
		alone, err := signing(ctx, w.Client())
		results = append(through, alone...)
		return err
	})
	return results, err
}

func program(w *stage.World, name string) local.ProgramOptions {
	return local.ProgramOptions{Workload: name, Binary: w.Binary(name)}
}

// newCaller makes a ServiceAccount and a WorkloadIdentity of the same name. It returns an HTTP
// client that acts as the ServiceAccount, and that may request tokens of both objects.
func newCaller(ctx context.Context, w *stage.World) (*http.Client, error) {
	meta := metav1.ObjectMeta{Namespace: namespace, Name: account}
	for _, object := range []client.Object{
		&corev1.ServiceAccount{ObjectMeta: meta},
		&identityv1.WorkloadIdentity{ObjectMeta: meta, Spec: identityv1.WorkloadIdentitySpec{
			Audiences: []string{audience}, TargetSystem: identityv1.TargetSystem{Type: "any"},
		}},
		&rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"}, Verbs: []string{"create"}},
			{APIGroups: []string{tokenv1.Group}, Resources: []string{"workloadidentities/token"}, Verbs: []string{"create"}},
		}},
		&rbacv1.RoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: account},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: account}},
		},
	} {
		if err := w.Client().Create(ctx, object); err != nil {
			return nil, err
		}
	}
	request := &authenticationv1.TokenRequest{}
	token, err := w.Typed.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, account, request, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	config := rest.AnonymousClientConfig(w.Config())
	config.BearerToken, config.QPS = token.Status.Token, -1
	return rest.HTTPClientFor(config)
}

// post asks for one token.
func post(ctx context.Context, caller *http.Client, url, body string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := caller.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusCreated {
		err = fmt.Errorf("ask for a token: HTTP %d: %s", response.StatusCode, answer)
	}
	return err
}

// throughAPIServer requests tokens from Lanyard and from kube-apiserver in turns of one second. For
// each pair of adjacent turns, it takes the ratio of the two rates, because other work of the
// machine slows both. The result is the median of these ratios. A second result compares the
// latencies.
func throughAPIServer(ctx context.Context, w *stage.World, caller *http.Client) ([]result, error) {
	host := w.Config().Host
	sides := []func() error{
		func() error { return post(ctx, caller, host+ourPath, ourRequest) },
		func() error { return post(ctx, caller, host+kubePath, kubeRequest) },
	}
	if err := awaitKeys(ctx, w, sides); err != nil {
		return nil, err
	}
	var rates [2][]float64           // tokens per second of each side, in each of its turns
	var latencies [2][]time.Duration // latencies of all requests of each side
	var ratios []float64
	for n := range pairs {
		for i := range sides {
			side := (n + i) % 2 // the sides take turns in going first
			took, rate, err := under(sides[side])
			if err != nil {
				return nil, err
			}
			rates[side], latencies[side] = append(rates[side], rate), append(latencies[side], took...)
		}
		ratios = append(ratios, rates[0][n]/rates[1][n])
	}
	ratio, our, kube := median(ratios), p99(latencies[0]), p99(latencies[1])
	slower := float64(our) / float64(kube)
	show := func(rates []float64) string { return fmt.Sprintf("%.0f/s", median(rates)) }
	return []result{
		{
			fmt.Sprintf("token requests of %d callers, beside kube-apiserver's", callers),
			show(rates[0]), show(rates[1]), hundredths(ratio), ">=0.9x", ratio >= 0.9,
		},
		{"the same: p99", tenths(our), tenths(kube), hundredths(slower), "<=1.3x", slower <= 1.3},
	}, nil
}

// awaitKeys waits until both sides make tokens, because a key signs only after it is published.
func awaitKeys(ctx context.Context, w *stage.World, sides []func() error) error {
	ctx, cancel := context.WithTimeout(ctx, firstToken)
	defer cancel()
	return w.Await(ctx, time.Second, func(context.Context) error { return errors.Join(sides[0](), sides[1]()) })
}

// under puts one side under load. Until the duration turn is over, all callers call ask again and
// again. Each call sends one request. under returns how long each request took, and the number of
// requests per second.
func under(ask func() error) (took []time.Duration, perSecond float64, err error) {
	var mu sync.Mutex
	start := time.Now()
	err = concurrently(callers, func(int) error {
		var own []time.Duration
		for time.Since(start) < turn {
			began := time.Now()
			if err := ask(); err != nil {
				return err
			}
			own = append(own, time.Since(began))
		}
		mu.Lock()
		defer mu.Unlock()
		took = append(took, own...)
		return nil
	})
	return took, float64(len(took)) / time.Since(start).Seconds(), err
}

func median(all []float64) float64 {
	return slices.Sorted(slices.Values(all))[len(all)/2]
}

func p99(all []time.Duration) time.Duration {
	return slices.Sorted(slices.Values(all))[len(all)*99/100]
}

// signing compares the number of tokens per second with the number of signatures per second. To
// make a token, it builds the claims from a WorkloadIdentity in memory, and signs them. Tokens and
// signatures use the keys of the cluster's issuer.
func signing(ctx context.Context, c client.Client) ([]result, error) {
	ring := sign.Object{Client: c, Namespace: local.Namespace, Name: keyring.IssuerRing}
	keys := sign.NewSecrets(ring)
	signer := sign.NewSigner(ring, keys, func() (time.Duration, error) { return 0, nil }, slog.New(slog.DiscardHandler))
	made := ourissuer.Issuer{URL: local.TokenIssuer, Limits: ourissuer.Limits{Min: time.Minute, Default: tokenLife, Max: tokenLife}}
	identity := &identityv1.WorkloadIdentity{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: account}, identity); err != nil {
		return nil, err
	}
	var results []result
	for _, algorithm := range []identityv1.Algorithm{identityv1.RS256, identityv1.ES256} {
		// Refresh the signer before each algorithm. One minute after it reads the key ring, it
		// stops signing.
		if err := signer.Refresh(ctx); err != nil {
			return nil, err
		}
		key, err := signer.Key(algorithm)
		if err != nil {
			return nil, err
		}
		private, err := keys.Open(ctx, key.ID)
		if err != nil {
			return nil, err
		}
		name := fmt.Sprintf("tokens made by one caller, beside %s signatures alone", algorithm)
		r := besideSignature(name, private, crypto.SHA256, func(int) error {
			claims, wrong := made.Claims(identity, &tokenv1.TokenRequestSpec{}, nil, uuid.NewString(), time.Now())
			if len(wrong) > 0 {
				return wrong.ToAggregate()
			}
			claims.Lanyard.Cluster = &ourissuer.Cluster{ID: "bench"}
			_, err := signer.JWT(algorithm, claims, time.Unix(claims.ExpiresAt, 0))
			return err
		})
		// ES256 has no target: signing is so fast that the rest of the work takes at least as long.
		if algorithm == identityv1.ES256 {
			r.target = ""
		}
		results = append(results, r)
	}
	return results, nil
}

func hundredths(f float64) string { return fmt.Sprintf("%.2fx", f) }

func tenths(d time.Duration) string { return d.Round(100 * time.Microsecond).String() }

package kube_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/internal/must"
	"github.com/lanyard-dev/lanyard/auth/kube"
)

var update = flag.Bool("update", false, "rewrite golden files")

const (
	roleARN = "eks.amazonaws.com/role-arn"
	roleA   = "arn:aws:iam::123456789123:role/tenant-a-ecr"
	roleB   = "arn:aws:iam::123456789123:role/tenant-b-ecr"
	stsAWS  = "sts.amazonaws.com"
)

func tenantA(tb testing.TB) auth.Subject {
	tb.Helper()
	subject, err := auth.ServiceAccount("tenant-a", "tenant-a-ecr-sa")
	must.Succeed(tb, err)
	return subject
}

// newCluster makes a cluster whose cache has these objects.
func newCluster(t *testing.T, config *rest.Config, objects map[client.Object]cache.ByObject) cluster.Cluster {
	t.Helper()
	c, err := cluster.New(config, func(o *cluster.Options) {
		o.MapperProvider = restMapper
		o.Cache = cache.Options{ByObject: objects}
	})
	must.Succeed(t, err)
	return c
}

func restMapper(*rest.Config, *http.Client) (meta.RESTMapper, error) {
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ServiceAccount"), meta.RESTScopeNamespace)
	mapper.Add(identityGroup.WithKind("WorkloadIdentity"), meta.RESTScopeNamespace)
	mapper.Add(identityGroup.WithKind("KeyRing"), meta.RESTScopeNamespace)
	return mapper, nil
}

// startCluster starts the cluster and waits until its cache is in sync. The cluster stops when the
// test ends.
func startCluster(t *testing.T, c cluster.Cluster) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	if !c.GetCache().WaitForCacheSync(ctx) {
		t.Fatal("the cache does not sync")
	}
}

// newAccounts makes an Accounts for the API server s, and waits until it is in sync.
func newAccounts(t *testing.T, s *apiServer, options kube.Options) *kube.Accounts {
	t.Helper()
	if options.Annotations == nil {
		options.Annotations = kube.DefaultAnnotations()
	}
	c := newCluster(t, s.config(), kube.ByObject(options.Annotations))
	accounts, err := kube.FromManager(t.Context(), c, options)
	must.Succeed(t, err)
	startCluster(t, c)
	return accounts
}

// eventually waits until the result of Lookup for tenant A's account passes the check.
func eventually(t *testing.T, accounts auth.AccountReader, check func(auth.Account, error) bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !check(accounts.Lookup(t.Context(), tenantA(t))) {
		if time.Now().After(deadline) {
			account, err := accounts.Lookup(t.Context(), tenantA(t))
			t.Fatalf("Lookup stays %+v, %v", account, err)
		}
		runtime.Gosched()
	}
}

func TestLookupFollowsTheCluster(t *testing.T) {
	s := newAPIServer(t)
	s.put("tenant-a", "tenant-a-ecr-sa", "uid-1", map[string]string{roleARN: roleA, "kubectl.kubernetes.io/last-applied-configuration": "{}"})
	accounts := newAccounts(t, s, kube.Options{})
	eventually(t, accounts, func(_ auth.Account, err error) bool { return err == nil })

	type told struct {
		subject auth.Subject
		account auth.Account
		err     error
	}
	changes := make(chan told, 10)
	accounts.Subscribe(func(subject auth.Subject) {
		// When a subscriber is notified, Lookup already returns the new state.
		account, err := accounts.Lookup(t.Context(), subject)
		changes <- told{subject, account, err}
	})

	next := func() told {
		t.Helper()
		select {
		case got := <-changes:
			return got
		case <-time.After(10 * time.Second):
			t.Fatal("nobody is told")
			return told{}
		}
	}

	account, _ := accounts.Lookup(t.Context(), tenantA(t))
	want := auth.Account{Subject: tenantA(t), UID: "uid-1", Attributes: map[string]string{roleARN: roleA}}
	if account.Subject != want.Subject || account.UID != want.UID || !maps.Equal(account.Attributes, want.Attributes) {
		t.Errorf("Lookup = %+v, want %+v", account, want)
	}

	// A change of labels, or of annotations that no provider reads, is not reported.
	s.put("tenant-a", "tenant-a-ecr-sa", "uid-1", map[string]string{roleARN: roleA, "note": "new"}, func(o *metav1.PartialObjectMetadata) { o.Labels = nil })
	// A change of an annotation that a provider reads is reported.
	s.put("tenant-a", "tenant-a-ecr-sa", "uid-1", map[string]string{roleARN: roleB})
	if got := next(); got.err != nil || got.subject != tenantA(t) || got.account.Attributes[roleARN] != roleB {
		t.Errorf("after re-annotation subscribers find %+v", got)
	}
	s.remove("tenant-a", "tenant-a-ecr-sa")
	if got := next(); auth.CodeOf(got.err) != auth.CodeSubjectNotFound {
		t.Errorf("after deletion subscribers find %+v", got)
	}
	s.put("tenant-a", "tenant-a-ecr-sa", "uid-2", nil)
	if got := next(); got.err != nil || got.account.UID != "uid-2" || got.account.Attributes != nil {
		t.Errorf("after creation subscribers find %+v", got)
	}
	s.put("tenant-a", "tenant-a-ecr-sa", "uid-3", nil) // deleted and created again
	got := next()
	for got.account.UID != "uid-3" {
		got = next()
	}
	if got.subject != tenantA(t) || got.err != nil {
		t.Errorf("after re-creation subscribers find %+v", got)
	}
}

func TestRead(t *testing.T) {
	s := newAPIServer(t)
	s.put("tenant-a", "tenant-a-ecr-sa", "uid-1", map[string]string{roleARN: roleA, "note": "x"})
	accounts := newAccounts(t, s, kube.Options{})

	account, err := accounts.Read(t.Context(), tenantA(t))
	must.Succeed(t, err)
	if account.Subject != tenantA(t) || account.UID != "uid-1" || !maps.Equal(account.Attributes, map[string]string{roleARN: roleA}) {
		t.Errorf("Read = %+v", account)
	}

	s.put("tenant-a", "tenant-a-ecr-sa", "uid-1", map[string]string{roleARN: roleA}, func(o *metav1.PartialObjectMetadata) {
		o.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		o.Finalizers = []string{"example.com/keep"}
	})
	if _, err := accounts.Read(t.Context(), tenantA(t)); auth.CodeOf(err) != auth.CodeSubjectNotFound {
		t.Errorf("Read of an account that is being deleted = %v", err)
	}
	eventually(t, accounts, func(_ auth.Account, err error) bool { return auth.CodeOf(err) == auth.CodeSubjectNotFound })
}

func TestProve(t *testing.T) {
	s := newAPIServer(t)
	s.put("tenant-a", "tenant-a-ecr-sa", "uid-1", nil)
	accounts := newAccounts(t, s, kube.Options{})
	s.mu.Lock()
	s.bodies = nil
	s.mu.Unlock()

	before := time.Now()
	account := auth.Account{Subject: tenantA(t), UID: "uid-1"}
	proof, err := accounts.Prove(t.Context(), account, forSTS())
	must.Succeed(t, err)
	if life := proof.(*auth.JWT).ExpiresAt.Sub(before); life < 599*time.Second || life > 610*time.Second {
		t.Errorf("the proof lives %s, want 600s", life)
	}
	if !strings.HasSuffix(proof.(*auth.JWT).Token.Reveal(), signature) {
		t.Error("the proof is not the token")
	}
	if proof, err = accounts.Prove(t.Context(), account, auth.ProofRequest{Form: auth.FormJWT, Audiences: []string{stsAWS}, Lifetime: time.Hour}); err != nil {
		t.Fatal(err)
	} else if life := proof.(*auth.JWT).ExpiresAt.Sub(before); life < 3599*time.Second {
		t.Errorf("the proof lives %s, want 3600s", life)
	}
	golden(t, "tokenrequests.json", []byte(strings.Join(s.bodies, "\n")+"\n"))
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		must.Succeed(t, os.WriteFile(path, got, 0o600))
	}
	want, err := os.ReadFile(path)
	must.Succeed(t, err)
	if !bytes.Equal(got, want) {
		t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
	}
}

// TestSwappedAccountHasNoProof checks that Prove fails for an account that was replaced after Read,
// even if the API server ignores the UID in a TokenRequest.
func TestSwappedAccountHasNoProof(t *testing.T) {
	for _, ignoresUID := range []bool{false, true} {
		s := newAPIServer(t)
		s.put("tenant-a", "tenant-a-ecr-sa", "uid-1", map[string]string{roleARN: roleA})
		accounts := newAccounts(t, s, kube.Options{})
		s.ignoresUID = ignoresUID

		account, err := accounts.Read(t.Context(), tenantA(t))
		must.Succeed(t, err)
		s.put("tenant-a", "tenant-a-ecr-sa", "uid-2", map[string]string{roleARN: roleA}) // replace the account before Prove
		proof, err := accounts.Prove(t.Context(), account, forSTS())
		if auth.CodeOf(err) != auth.CodeSubjectReplaced || proof != nil {
			t.Errorf("API server ignores UID %t: Prove = %v, want %s", ignoresUID, err, auth.CodeSubjectReplaced)
		}
		if auth.IsTemporary(err) {
			t.Error("tokens of an account that is gone must not be served")
		}
	}
}

func TestAccountSwappedWhileMinting(t *testing.T) {
	s := newAPIServer(t)
	s.put("tenant-a", "tenant-a-ecr-sa", "uid-1", nil)
	accounts := newAccounts(t, s, kube.Options{})
	s.ignoresUID = true
	s.minting = func() { s.put("tenant-a", "tenant-a-ecr-sa", "uid-2", nil) }

	_, err := accounts.Prove(t.Context(), auth.Account{Subject: tenantA(t), UID: "uid-1"}, forSTS())
	if auth.CodeOf(err) != auth.CodeSubjectReplaced {
		t.Errorf("Prove = %v, want %s", err, auth.CodeSubjectReplaced)
	}
}

func TestProofSaysWhatWasAsked(t *testing.T) {
	serviceAccount := func(claims map[string]any) map[string]any {
		return claims["kubernetes.io"].(map[string]any)["serviceaccount"].(map[string]any)
	}
	for name, test := range map[string]struct {
		tamper func(claims map[string]any)
		want   auth.Code
	}{
		"other subject":     {func(c map[string]any) { c["sub"] = "system:serviceaccount:tenant-b:tenant-b-ecr-sa" }, auth.CodeProofInvalid},
		"other namespace":   {func(c map[string]any) { c["kubernetes.io"].(map[string]any)["namespace"] = "tenant-b" }, auth.CodeProofInvalid},
		"other name":        {func(c map[string]any) { serviceAccount(c)["name"] = "tenant-b-ecr-sa" }, auth.CodeProofInvalid},
		"other uid":         {func(c map[string]any) { serviceAccount(c)["uid"] = "uid-2" }, auth.CodeSubjectReplaced},
		"no uid":            {func(c map[string]any) { delete(serviceAccount(c), "uid") }, auth.CodeSubjectReplaced},
		"no kubernetes.io":  {func(c map[string]any) { delete(c, "kubernetes.io") }, auth.CodeProofInvalid},
		"other audience":    {func(c map[string]any) { c["aud"] = []string{"sts.amazonaws.com.cn"} }, auth.CodeProofInvalid},
		"one audience more": {func(c map[string]any) { c["aud"] = []string{stsAWS, apiAudience} }, auth.CodeProofInvalid},
		"no audience":       {func(c map[string]any) { delete(c, "aud") }, auth.CodeProofInvalid},
		"audience no list":  {func(c map[string]any) { c["aud"] = stsAWS }, auth.CodeProofInvalid},
		"expired":           {func(c map[string]any) { c["exp"] = time.Now().Unix() - 1 }, auth.CodeProofInvalid},
		"no expiry":         {func(c map[string]any) { delete(c, "exp") }, auth.CodeProofInvalid},
		"expiry no number":  {func(c map[string]any) { c["exp"] = "tomorrow" }, auth.CodeProofInvalid},
		"endless":           {func(c map[string]any) { c["exp"] = 1e300 }, auth.CodeProofInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			s := newAPIServer(t)
			s.put("tenant-a", "tenant-a-ecr-sa", "uid-1", nil)
			accounts := newAccounts(t, s, kube.Options{})
			s.tamper = test.tamper
			proof, err := accounts.Prove(t.Context(), auth.Account{Subject: tenantA(t), UID: "uid-1"}, forSTS())
			if auth.CodeOf(err) != test.want || proof != nil {
				t.Errorf("Prove = %v, want %s", err, test.want)
			}
			checkError(t, err)
		})
	}
}

// TestRefusedAudiences checks that Prove refuses a request for an audience of the API server,
// without a call to the API server.
func TestRefusedAudiences(t *testing.T) {
	s := newAPIServer(t)
	s.put("tenant-a", "tenant-a-ecr-sa", "uid-1", nil)
	learned := newAccounts(t, s, kube.Options{})
	told := newAccounts(t, s, kube.Options{APIAudiences: []string{"api"}})
	calls := len(s.calls())
	account := auth.Account{Subject: tenantA(t), UID: "uid-1"}
	for _, test := range []struct {
		accounts *kube.Accounts
		audience string
	}{{learned, ""}, {learned, apiAudience}, {learned, "k3s"}, {told, ""}, {told, "api"}} {
		proof, err := test.accounts.Prove(t.Context(), account, auth.ProofRequest{Form: auth.FormJWT, Audiences: []string{test.audience}})
		if auth.CodeOf(err) != auth.CodeAudienceRefused || proof != nil {
			t.Errorf("audience %q: %v, want %s", test.audience, err, auth.CodeAudienceRefused)
		}
		checkError(t, err)
	}
	if got := len(s.calls()); got != calls {
		t.Errorf("%d calls", got-calls)
	}
}

func TestOnlyReadServiceAccountsAreProven(t *testing.T) {
	s := newAPIServer(t)
	accounts := newAccounts(t, s, kube.Options{})
	workload, err := auth.WorkloadIdentity("lanyard-system", "lanyard-controller")
	must.Succeed(t, err)
	calls := len(s.calls())
	for _, account := range []auth.Account{
		{},
		{Subject: tenantA(t)},
		{Subject: auth.Controller(), UID: "self-uid"},
		{Subject: workload, UID: "self-uid"},
	} {
		_, err := accounts.Prove(t.Context(), account, forSTS())
		if auth.CodeOf(err) != auth.CodeSubjectInvalid {
			t.Errorf("Prove(%+v) = %v, want %s", account, err, auth.CodeSubjectInvalid)
		}
		checkError(t, err)
	}
	for _, subject := range []auth.Subject{{}, auth.Controller(), workload} {
		if _, err := accounts.Read(t.Context(), subject); auth.CodeOf(err) != auth.CodeSubjectInvalid {
			t.Errorf("Read(%s) = %v, want %s", subject, err, auth.CodeSubjectInvalid)
		}
		if _, err := accounts.Lookup(t.Context(), subject); auth.CodeOf(err) != auth.CodeSubjectNotFound {
			t.Errorf("Lookup(%s) = %v, want %s", subject, err, auth.CodeSubjectNotFound)
		}
	}
	if got := len(s.calls()); got != calls {
		t.Errorf("%d calls", got-calls)
	}
}

// checkError checks that an error is an *auth.Error with stage, code and fix, and has no secret.
func checkError(t *testing.T, err error) {
	t.Helper()
	var typed *auth.Error
	if !errors.As(err, &typed) || typed.Stage == "" || typed.Code == "" || typed.Fix == "" || typed.Err == nil {
		t.Errorf("error has no stage, code, fix or cause: %#v", err)
	}
	for e := err; e != nil; e = errors.Unwrap(e) {
		if strings.Contains(e.Error(), signature) || strings.Contains(e.Error(), "eyJ") {
			t.Errorf("error has a token in it: %v", e)
		}
	}
}

func TestAPIServerFailures(t *testing.T) {
	status := func(err *apierrors.StatusError) func(*apiServer, http.ResponseWriter, *http.Request) {
		return func(_ *apiServer, w http.ResponseWriter, _ *http.Request) { refuse(w, err) }
	}
	page := func(code int, body string) func(*apiServer, http.ResponseWriter, *http.Request) {
		return func(_ *apiServer, w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(code)
			_, _ = w.Write([]byte(body))
		}
	}
	throttled := apierrors.NewTooManyRequests("too many", 7)
	terminating := apierrors.NewForbidden(schema.GroupResource{Resource: "serviceaccounts"}, "tenant-a-ecr-sa", errors.New("terminating"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	secretPage := "<html>eyJhbGciOiJSUzI1NiJ9.e30." + signature

	for name, test := range map[string]struct {
		answer     func(*apiServer, http.ResponseWriter, *http.Request)
		want       auth.Code
		fix        [2]string // text that Fix must contain: for Read, for Prove
		retryAfter time.Duration
	}{
		"forbidden": {
			answer: status(apierrors.NewForbidden(schema.GroupResource{Resource: "serviceaccounts"}, "tenant-a-ecr-sa", errors.New("no rule"))),
			want:   auth.CodeProofDenied,
			fix: [2]string{
				`grant "get" on serviceaccounts in namespace tenant-a to ` + selfUser + ", with a RoleBinding in the namespace or a ClusterRoleBinding",
				`grant "create" on serviceaccounts/token in namespace tenant-a to ` + selfUser + ", with a RoleBinding in the namespace or a ClusterRoleBinding",
			},
		},
		"not found": {
			answer: status(apierrors.NewNotFound(schema.GroupResource{Resource: "serviceaccounts"}, "tenant-a-ecr-sa")),
			want:   auth.CodeSubjectNotFound,
			fix:    [2]string{"create ServiceAccount tenant-a/tenant-a-ecr-sa", "create ServiceAccount tenant-a/tenant-a-ecr-sa"},
		},
		"namespace going":       {answer: status(terminating), want: auth.CodeSubjectNotFound},
		"throttled":             {answer: status(throttled), want: auth.CodeThrottled, retryAfter: 7 * time.Second},
		"throttled without ado": {answer: page(429, secretPage), want: auth.CodeThrottled},
		"internal error":        {answer: status(apierrors.NewInternalError(errors.New(secretPage))), want: auth.CodeUnavailable},
		"server timeout":        {answer: status(apierrors.NewServerTimeout(schema.GroupResource{}, "get", 3)), want: auth.CodeUnavailable, retryAfter: 3 * time.Second},
		"bad gateway":           {answer: page(502, secretPage), want: auth.CodeUnavailable},
		"unauthorized":          {answer: status(apierrors.NewUnauthorized("no")), want: auth.CodeUnavailable},
		"invalid":               {answer: status(apierrors.NewInvalid(schema.GroupKind{Kind: "TokenRequest"}, "", nil)), want: auth.CodeRefused},
		"someone else's 404":    {answer: page(404, secretPage), want: auth.CodeResponseInvalid},
		"someone else's 403":    {answer: page(403, secretPage), want: auth.CodeResponseInvalid},
		"a page":                {answer: page(200, secretPage), want: auth.CodeResponseInvalid},
		"connection lost": {
			answer: func(_ *apiServer, w http.ResponseWriter, _ *http.Request) {
				connection, _, err := http.NewResponseController(w).Hijack()
				if err == nil {
					_ = connection.Close()
				}
			},
			want: auth.CodeUnreachable,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newAPIServer(t)
			accounts := newAccounts(t, s, kube.Options{})
			s.intercept = func(w http.ResponseWriter, r *http.Request) bool {
				if r.URL.Query().Get("watch") != "" {
					return false
				}
				test.answer(s, w, r)
				return true
			}
			limit := time.Minute // long enough even on a busy machine
			if name == "connection lost" {
				limit = 500 * time.Millisecond // end the client's own retries early
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			_, proveErr := accounts.Prove(ctx, auth.Account{Subject: tenantA(t), UID: "uid-1"}, forSTS())
			_, readErr := accounts.Read(ctx, tenantA(t))
			for i, err := range []error{readErr, proveErr} {
				checkError(t, err)
				var typed *auth.Error
				if !errors.As(err, &typed) || typed.Code != test.want || typed.RetryAfter != test.retryAfter || !strings.Contains(typed.Fix, test.fix[i]) {
					t.Errorf("got %v (%s, retry after %s), want %s, %q, retry after %s", err, typed.Code, typed.RetryAfter, test.want, test.fix[i], test.retryAfter)
				}
				if want := [2]auth.Stage{auth.StageSubject, auth.StageTokenRequest}[i]; typed.Stage != want {
					t.Errorf("stage %s, want %s", typed.Stage, want)
				}
			}
		})
	}
}

func TestAPIServerIsSilent(t *testing.T) {
	s := newAPIServer(t)
	accounts := newAccounts(t, s, kube.Options{})
	s.intercept = func(_ http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Get("watch") != "" {
			return false
		}
		<-r.Context().Done()
		return true
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := accounts.Read(ctx, tenantA(t))
	checkError(t, err)
	if auth.CodeOf(err) != auth.CodeUnreachable || !auth.IsTemporary(err) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Read = %v, want %s and the deadline", err, auth.CodeUnreachable)
	}
}

// TestLearningTheAudiences checks that the API server's audiences are learned from one token of the
// program's own account.
func TestLearningTheAudiences(t *testing.T) {
	s := newAPIServer(t)
	newAccounts(t, s, kube.Options{})
	calls := slices.DeleteFunc(s.calls(), func(call string) bool { return call == "GET /api/v1/serviceaccounts" })
	want := []string{
		"POST /apis/authentication.k8s.io/v1/selfsubjectreviews",
		"POST /api/v1/namespaces/lanyard-system/serviceaccounts/lanyard-controller/token",
	}
	if !slices.Equal(calls, want) {
		t.Errorf("calls %q, want %q", calls, want)
	}
	golden(t, "learning.json", []byte(strings.Join(s.bodies, "\n")+"\n"))
}

func TestLearningFails(t *testing.T) {
	tampered := func(claim string, value any) func(*apiServer) {
		return func(s *apiServer) { s.tamper = func(claims map[string]any) { claims[claim] = value } }
	}
	forbid := func(part string) func(*apiServer) {
		return func(s *apiServer) {
			s.intercept = func(w http.ResponseWriter, r *http.Request) bool {
				if !strings.HasSuffix(r.URL.Path, part) {
					return false
				}
				refuse(w, apierrors.NewForbidden(schema.GroupResource{Resource: part}, "", errors.New("no rule")))
				return true
			}
		}
	}
	for name, test := range map[string]struct {
		set  func(*apiServer)
		code auth.Code
		want string
	}{
		"no ServiceAccount": {
			func(s *apiServer) { s.user = authenticationv1.UserInfo{Username: "kubernetes-admin"} },
			auth.CodeSubjectInvalid, "run this program as a ServiceAccount",
		},
		"almost one": {
			func(s *apiServer) { s.user = authenticationv1.UserInfo{Username: "lanyard-system:lanyard-controller"} },
			auth.CodeSubjectInvalid, "run this program as a ServiceAccount",
		},
		"no review": {forbid("selfsubjectreviews"), auth.CodeProofDenied, `grant "create" on selfsubjectreviews.authentication.k8s.io`},
		"no token": {
			forbid("token"), auth.CodeProofDenied,
			`grant "create" on serviceaccounts/token in namespace lanyard-system to ` + selfUser + ", with a RoleBinding in the namespace",
		},
		"no audience":     {tampered("aud", []string{}), auth.CodeProofInvalid, "check that the answers to TokenRequests"},
		"empty audience":  {tampered("aud", []string{""}), auth.CodeProofInvalid, "check that the answers to TokenRequests"},
		"another's token": {tampered("sub", "x"), auth.CodeProofInvalid, "check that the answers to TokenRequests"},
		"replaced":        {func(s *apiServer) { s.user.UID = "old-uid" }, auth.CodeSubjectReplaced, "try again"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newAPIServer(t)
			test.set(s)
			accounts, err := kube.FromManager(t.Context(), newCluster(t, s.config(), kube.ByObject(kube.DefaultAnnotations())), kube.Options{})
			if err == nil || accounts != nil {
				t.Fatal("accounts without knowing the API server's audiences")
			}
			checkError(t, err)
			if auth.CodeOf(err) != test.code {
				t.Errorf("%v, want %s", err, test.code)
			}
			for _, part := range []string{test.want, "with a token of this program's own account", "kube.Options.APIAudiences", "kubectl create token default"} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not say %q", err, part)
				}
			}
		})
	}
}

// TestForbiddenWithoutAName checks the error of a program that sets APIAudiences. Such a program
// does not learn its own user name, so the error cannot contain this name.
func TestForbiddenWithoutAName(t *testing.T) {
	s := newAPIServer(t)
	accounts := newAccounts(t, s, kube.Options{APIAudiences: []string{"api"}})
	s.intercept = func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "/token") {
			return false
		}
		refuse(w, apierrors.NewForbidden(schema.GroupResource{Resource: "serviceaccounts"}, "tenant-a-ecr-sa", errors.New("no rule")))
		return true
	}
	_, err := accounts.Prove(t.Context(), auth.Account{Subject: tenantA(t), UID: "uid-1"}, forSTS())
	checkError(t, err)
	if auth.CodeOf(err) != auth.CodeProofDenied || !strings.Contains(err.Error(), `grant "create" on serviceaccounts/token in namespace tenant-a to the ServiceAccount of this program, `) {
		t.Errorf("%v", err)
	}
}

func TestNewAccountsNeedsItsOptions(t *testing.T) {
	s := newAPIServer(t)
	c := newCluster(t, s.config(), kube.ByObject(kube.DefaultAnnotations()))
	live, err := client.New(s.config(), client.Options{Mapper: c.GetRESTMapper()})
	must.Succeed(t, err)
	whole := kube.Options{Informers: c.GetCache(), APIReader: live, Client: live, APIAudiences: []string{"api"}}
	if _, err := kube.NewAccounts(t.Context(), whole); err != nil {
		t.Fatal(err)
	}
	for name, without := range map[string]func(*kube.Options){
		"Informers":    func(o *kube.Options) { o.Informers = nil },
		"APIReader":    func(o *kube.Options) { o.APIReader = nil },
		"Client":       func(o *kube.Options) { o.Client = nil },
		"APIAudiences": func(o *kube.Options) { o.APIAudiences = []string{"api", ""} },
	} {
		options := whole
		without(&options)
		if _, err := kube.NewAccounts(t.Context(), options); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("without %s: %v", name, err)
		}
	}
}

// TestConcurrentUse calls Lookup, Subscribe, Read and Prove while an account's role changes. Every
// Read and Prove must succeed. In the end, Lookup must return the last role.
func TestConcurrentUse(t *testing.T) {
	s := newAPIServer(t)
	s.put("tenant-a", "tenant-a-ecr-sa", "uid-1", map[string]string{roleARN: roleA})
	accounts := newAccounts(t, s, kube.Options{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			accounts.Subscribe(func(auth.Subject) {})
			for range 200 {
				account, err := accounts.Lookup(t.Context(), tenantA(t))
				if err == nil && (account.Attributes[roleARN] == "" || account.UID != "uid-1") {
					t.Errorf("Lookup = %+v", account)
				}
			}
			account, err := accounts.Read(t.Context(), tenantA(t))
			if err != nil {
				t.Error(err)
			}
			if _, err := accounts.Prove(t.Context(), account, forSTS()); err != nil {
				t.Error(err)
			}
		})
	}
	for i := range 50 {
		s.put("tenant-a", "tenant-a-ecr-sa", "uid-1", map[string]string{roleARN: []string{roleA, roleB}[i%2]})
	}
	wg.Wait()
	eventually(t, accounts, func(account auth.Account, err error) bool { return err == nil && account.Attributes[roleARN] == roleB })
}

// TestClientsOwnLimitIsTemporary checks that the error is temporary if the client's rate limiter
// refuses a call. The refusal says nothing about the account, whose tokens stay valid.
func TestClientsOwnLimitIsTemporary(t *testing.T) {
	s := newAPIServer(t)
	s.limiter = flowcontrol.NewTokenBucketRateLimiter(0.001, 100)
	s.put("tenant-a", "tenant-a-ecr-sa", "uid-1", nil)
	accounts := newAccounts(t, s, kube.Options{})
	for s.limiter.TryAccept() { // use up the limit
	}
	_, err := accounts.Read(t.Context(), tenantA(t))
	if auth.CodeOf(err) != auth.CodeThrottled {
		t.Errorf("Read: %v; want %s", err, auth.CodeThrottled)
	}
	_, err = accounts.Prove(t.Context(), auth.Account{Subject: tenantA(t), UID: "uid-1"}, forSTS())
	if auth.CodeOf(err) != auth.CodeThrottled {
		t.Errorf("Prove: %v; want %s", err, auth.CodeThrottled)
	}
}

package access_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/cache"
	"github.com/lanyard-dev/lanyard/auth/spec"
	"github.com/lanyard-dev/lanyard/internal/controller/access"
	"github.com/lanyard-dev/lanyard/internal/controller/controllertest"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
	"github.com/lanyard-dev/lanyard/internal/must"
)

var (
	errUnauthorized = errors.New("HTTP 401")
	errDenied       = errors.New("HTTP 403")
)

// loginWorld has a service whose answers a test sets, and a cloud with roles that trust the
// accounts of tenant-a.
type loginWorld struct {
	t        *testing.T
	access   *access.Access
	accounts *controllertest.Accounts
	cloud    *controllertest.Cloud
	status   meta.FetchStatus
	answers  []error  // answers of the service, one after the other; success after the last
	seen     []string // IDs of the sessions that were sent to the service
}

const role = "role/tenant-a"

func newLoginWorld(t *testing.T) *loginWorld {
	t.Helper()
	tokens := cache.New(cache.Options{MaxSize: 10})
	w := &loginWorld{t: t, accounts: &controllertest.Accounts{}, cloud: controllertest.NewCloud("")}
	w.access = &access.Access{
		Provider: func(string) (auth.Provider, error) { return w.cloud, nil }, Accounts: w.accounts, Cache: tokens, Observer: tokens,
	}
	for _, name := range []string{"reader", "other"} {
		w.accounts.Put(t, "tenant-a", name, "uid-"+name, map[string]string{"role": role + "-" + name})
		w.cloud.Trust(role+"-"+name, "system:serviceaccount:tenant-a:"+name)
	}
	return w
}

// use runs one reconciliation as an account of tenant-a.
func (w *loginWorld) use(account string) error {
	w.t.Helper()
	subject, err := auth.ServiceAccount("tenant-a", account)
	must.Succeed(w.t, err)
	call := access.Call{Identity: spec.Identity{Source: spec.Cloud, Provider: "aws", Subject: subject}}
	return w.useAs(call, func(conn *access.Connection, minRemaining time.Duration) (access.Login, error) {
		return w.access.Mint(w.t.Context(), call, conn, auth.WithMinRemaining(minRemaining))
	})
}

func (w *loginWorld) useAs(call access.Call, login func(*access.Connection, time.Duration) (access.Login, error)) error {
	w.t.Helper()
	conn, err := w.access.Connect(w.t.Context(), call, "service.example.com")
	must.Succeed(w.t, err)
	defer conn.Close()
	w.seen = nil
	return w.access.WithCredential(conn, &w.status,
		func(minRemaining time.Duration) (access.Login, error) { return login(conn, minRemaining) },
		func(c access.Login) error {
			id := "-"
			if c.Token != nil {
				id = c.Token.(*controllertest.Session).ID
			}
			w.seen = append(w.seen, id)
			if len(w.answers) == 0 {
				return nil
			}
			answer := w.answers[0]
			w.answers = w.answers[1:]
			return answer
		},
		func(err error) bool { return errors.Is(err, errUnauthorized) })
}

// TestWithCredential checks what the service gets, the identity in the status, and the error, for
// each sort of login and for logins that fail.
func TestWithCredential(t *testing.T) {
	stored := func(*access.Connection, time.Duration) (access.Login, error) {
		return access.StaticLogin("secret:tenant-a:keys", access.Credential{}), nil
	}
	nobody := func(*access.Connection, time.Duration) (access.Login, error) { return access.Login{}, nil }
	refused := &auth.Error{Stage: auth.StageExchange, Code: auth.CodeTrustRefused, Err: errors.New("no")}
	passing := &auth.Error{Stage: auth.StageExchange, Code: auth.CodeUnavailable, Err: errors.New("down")}
	fails := func(err error) func(*access.Connection, time.Duration) (access.Login, error) {
		return func(*access.Connection, time.Duration) (access.Login, error) { return access.Login{}, err }
	}
	const before = "who it was before"
	for name, c := range map[string]struct {
		login   func(*access.Connection, time.Duration) (access.Login, error) // nil: log in with a session of the cloud
		answers []error
		seen    []string
		subject string // subject of the status's identity; empty for none
		says    string // part of the error; empty for success
	}{
		"a session":                                  {seen: []string{"AKID1"}, subject: "system:serviceaccount:tenant-a:reader"},
		"a session that may not":                     {answers: []error{errDenied}, seen: []string{"AKID1"}, subject: "system:serviceaccount:tenant-a:reader", says: "as role/tenant-a-reader: HTTP 403"},
		"a session that was ended":                   {answers: []error{errUnauthorized}, seen: []string{"AKID1", "AKID2"}, subject: "system:serviceaccount:tenant-a:reader"},
		"a session that was ended, and then may not": {answers: []error{errUnauthorized, errDenied}, seen: []string{"AKID1", "AKID2"}, subject: "system:serviceaccount:tenant-a:reader", says: "as role/tenant-a-reader: HTTP 403"},
		"sessions that are never taken":              {answers: []error{errUnauthorized, errUnauthorized}, seen: []string{"AKID1", "AKID2"}, subject: "system:serviceaccount:tenant-a:reader", says: "as role/tenant-a-reader: HTTP 401"},
		"a password":                                 {login: stored, seen: []string{"-"}, subject: "secret:tenant-a:keys"},
		"a password that is wrong, and stays it":     {login: stored, answers: []error{errUnauthorized}, seen: []string{"-"}, subject: "secret:tenant-a:keys", says: "as secret:tenant-a:keys: HTTP 401"},
		"nobody":                                     {login: nobody, seen: []string{"-"}},
		"nobody, at a service that asks":             {login: nobody, answers: []error{errUnauthorized}, seen: []string{"-"}, says: "HTTP 401"},
		"an identity that is refused":                {login: fails(refused), says: "no"},
		"an identity that nobody can judge now":      {login: fails(passing), subject: before, says: "down"},
		"a Secret that does not serve":               {login: fails(&object.SecretError{Err: errors.New("x")}), says: "x"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newLoginWorld(t)
			w.answers, w.status.Identity = c.answers, &meta.Identity{Subject: before}
			var err error
			if c.login == nil {
				err = w.use("reader")
			} else {
				err = w.useAs(access.Call{}, c.login)
			}
			if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) || err != nil && strings.HasPrefix(err.Error(), "as ") != strings.HasPrefix(c.says, "as ") {
				t.Errorf("error %v, want %q", err, c.says)
			}
			if !slices.Equal(w.seen, c.seen) {
				t.Errorf("the service was shown %q, want %q", w.seen, c.seen)
			}
			subject := ""
			if w.status.Identity != nil {
				subject = w.status.Identity.Subject
			}
			if subject != c.subject {
				t.Errorf("the status says %q, want %q", subject, c.subject)
			}
		})
	}
}

// If the service rejects a token, and the cloud then refuses the identity, the error is the
// cloud's.
func TestWithCredentialOfAnIdentityThatWasRevoked(t *testing.T) {
	w := newLoginWorld(t)
	must.Succeed(t, w.use("reader"))
	w.cloud.Trust(role+"-reader", "nobody")
	w.answers = []error{errUnauthorized}
	if err := w.use("reader"); auth.CodeOf(err) != auth.CodeTrustRefused || w.status.Identity != nil || len(w.seen) != 1 {
		t.Errorf("%v, identity %+v, shown %q", err, w.status.Identity, w.seen)
	}
}

// If a service rejects every credential, a subject's token is replaced at most once a minute. A
// tenant may have set up such a service on purpose. Rejected tokens of other subjects are still
// replaced.
func TestRefusedTokensAreReplacedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLoginWorld(t)
		refuse := func() {
			t.Helper()
			w.answers = slices.Repeat([]error{errUnauthorized}, 2)
			if err := w.use("reader"); !errors.Is(err, errUnauthorized) {
				t.Fatal(err)
			}
		}
		exchanges := func(want int, when string) {
			t.Helper()
			if got := len(w.cloud.Exchanges()); got != want {
				t.Errorf("%s: %d exchanges, want %d", when, got, want)
			}
		}
		refuse()
		exchanges(2, "at first")
		for range 59 {
			time.Sleep(time.Second)
			refuse()
			if len(w.seen) != 1 {
				t.Errorf("the service was shown %q", w.seen)
			}
		}
		exchanges(2, "within a minute, once a second")

		// The limit does not apply to another subject's tokens.
		w.answers = []error{errUnauthorized}
		if err := w.use("other"); err != nil {
			t.Error(err)
		}
		exchanges(4, "another account")

		time.Sleep(time.Second)
		refuse()
		exchanges(5, "after a minute")
		for range 120 {
			time.Sleep(time.Second)
			refuse()
		}
		exchanges(7, "two minutes later")

		// Ten minutes later the limit has passed: a rejected token is replaced at once.
		time.Sleep(10 * time.Minute)
		w.answers = []error{errUnauthorized}
		if err := w.use("reader"); err != nil {
			t.Error(err)
		}
		exchanges(8, "long after")
	})
}

// The cache of accounts may not have a new ServiceAccount yet. Even so, the account gets tokens.
// The status must show the cloud identity of these tokens. If the service rejects them, a token
// must be replaced at most once a minute, as for other accounts.
func TestTokenOfANewAccount(t *testing.T) {
	w := newLoginWorld(t)
	w.accounts.Unheard(true)
	// The first use of the account replaces the rejected token, so it makes two exchanges. The
	// second use must make only one more, because it must not replace a token again so soon.
	for i, exchanges := range []int{2, 3} {
		w.answers = []error{errUnauthorized, errUnauthorized}
		if err := w.use("reader"); !errors.Is(err, errUnauthorized) || len(w.cloud.Exchanges()) != exchanges || w.status.Identity.CloudIdentity != role+"-reader" {
			t.Errorf("attempt %d: %v after %d exchanges as %+v", i, err, len(w.cloud.Exchanges()), w.status.Identity)
		}
	}
}

// A subject's tokens are renewed at most once in ten seconds, however often this is requested. The
// limit is separate for each subject.
func TestRenew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dropped := map[auth.Subject]int{}
		a := &access.Access{Invalidate: func(s auth.Subject) { dropped[s]++ }}
		one, err := auth.WorkloadIdentity("tenant-a", "puller")
		must.Succeed(t, err)
		other, err := auth.WorkloadIdentity("tenant-b", "puller")
		must.Succeed(t, err)
		for range 10 { // for 30 seconds
			for range 100 {
				a.Renew(one)
			}
			time.Sleep(3 * time.Second)
		}
		a.Renew(other)
		if dropped[one] != 3 || dropped[other] != 1 {
			t.Errorf("%v, want 3 renewals of one and 1 of the other", dropped)
		}
	})
}

package source_test

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
	"github.com/lanyard-dev/lanyard/internal/controller/source"
	"github.com/lanyard-dev/lanyard/internal/controller/source/sourcetest"
)

var (
	errUnauthorized = errors.New("HTTP 401")
	errDenied       = errors.New("HTTP 403")
)

// shown is a credential as a kind has it.
type shown struct{ source.Login }

// loginWorld is a service that answers as a test says, and a cloud whose role trusts tenant-a's account.
type loginWorld struct {
	t        *testing.T
	access   *source.Access
	accounts *sourcetest.Accounts
	cloud    *sourcetest.Cloud
	status   meta.Status
	answers  []error  // of the service, one after the other; none is success
	seen     []string // IDs of the sessions that the service was shown
}

const role = "role/tenant-a"

func newLoginWorld(t *testing.T) *loginWorld {
	t.Helper()
	tokens := cache.New(cache.Options{MaxSize: 10})
	w := &loginWorld{t: t, accounts: &sourcetest.Accounts{}, cloud: sourcetest.NewCloud("")}
	w.access = &source.Access{Providers: map[string]auth.Provider{"aws": w.cloud}, Accounts: w.accounts, Cache: tokens, Observer: tokens}
	for _, name := range []string{"reader", "other"} {
		w.accounts.Put(t, "tenant-a", name, "uid-"+name, map[string]string{"role": role + "-" + name})
		w.cloud.Trust(role+"-"+name, "system:serviceaccount:tenant-a:"+name)
	}
	return w
}

// use is one reconciliation as tenant-a/reader, or another account.
func (w *loginWorld) use(account string) error {
	w.t.Helper()
	subject, err := auth.ServiceAccount("tenant-a", account)
	if err != nil {
		w.t.Fatal(err)
	}
	call := source.Call{Identity: spec.Identity{Source: spec.Cloud, Provider: "aws", Subject: subject}}
	return w.useAs(call, func(conn *source.Connection, minRemaining time.Duration) (shown, error) {
		login, err := w.access.Mint(w.t.Context(), call, conn, auth.WithMinRemaining(minRemaining))
		return shown{login}, err
	})
}

func (w *loginWorld) useAs(call source.Call, login func(*source.Connection, time.Duration) (shown, error)) error {
	w.t.Helper()
	conn, err := w.access.Connect(w.t.Context(), call, "service.example.com")
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close()
	w.seen = nil
	return source.Use(w.access, conn, &w.status,
		func(minRemaining time.Duration) (shown, error) { return login(conn, minRemaining) },
		func(c shown) error {
			id := "-"
			if c.Token != nil {
				id = c.Token.(*sourcetest.Session).ID
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

// What becomes of each kind of credential with each answer.
func TestUse(t *testing.T) {
	stored := func(*source.Connection, time.Duration) (shown, error) {
		return shown{source.StoredIn("tenant-a", "keys")}, nil
	}
	nobody := func(*source.Connection, time.Duration) (shown, error) { return shown{}, nil }
	refused := &auth.Error{Stage: auth.StageExchange, Code: auth.CodeTrustRefused, Err: errors.New("no")}
	passing := &auth.Error{Stage: auth.StageExchange, Code: auth.CodeUnavailable, Err: errors.New("down")}
	fails := func(err error) func(*source.Connection, time.Duration) (shown, error) {
		return func(*source.Connection, time.Duration) (shown, error) { return shown{}, err }
	}
	const before = "who it was before"
	for name, c := range map[string]struct {
		login   func(*source.Connection, time.Duration) (shown, error) // nil: a session of the cloud
		answers []error
		seen    []string
		subject string // in the status; empty for none
		says    string // empty for success
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
		"a Secret that does not serve":               {login: fails(&source.SecretError{Err: errors.New("x")}), says: "x"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newLoginWorld(t)
			w.answers, w.status.Identity = c.answers, &meta.Identity{Subject: before}
			var err error
			if c.login == nil {
				err = w.use("reader")
			} else {
				err = w.useAs(source.Call{}, c.login)
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

// If the identity is refused by the time that another credential is asked for, that is what is told.
func TestUseOfAnIdentityThatWasRevoked(t *testing.T) {
	w := newLoginWorld(t)
	if err := w.use("reader"); err != nil {
		t.Fatal(err)
	}
	w.cloud.Trust(role+"-reader", "nobody")
	w.answers = []error{errUnauthorized}
	if err := w.use("reader"); auth.CodeOf(err) != auth.CodeTrustRefused || w.status.Identity != nil || len(w.seen) != 1 {
		t.Errorf("%v, identity %+v, shown %q", err, w.status.Identity, w.seen)
	}
}

// A service that takes no credential, which a tenant may have set up on purpose, costs one exchange a minute and key, however often it
// is asked. What others use is replaced all the same.
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

		// Another subject's tokens are not held back.
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

		// The next one that was ended early is replaced at once.
		time.Sleep(10 * time.Minute)
		w.answers = []error{errUnauthorized}
		if err := w.use("reader"); err != nil {
			t.Error(err)
		}
		exchanges(8, "long after")
	})
}

// A token of an account that memory has not heard of was got just now.
func TestTokenOfANewAccountIsNotReplaced(t *testing.T) {
	w := newLoginWorld(t)
	w.accounts.Unheard(true)
	w.answers = []error{errUnauthorized}
	if err := w.use("reader"); !errors.Is(err, errUnauthorized) || len(w.cloud.Exchanges()) != 1 || w.status.Identity.CloudIdentity != role+"-reader" {
		t.Errorf("%v after %d exchanges as %+v", err, len(w.cloud.Exchanges()), w.status.Identity)
	}
}

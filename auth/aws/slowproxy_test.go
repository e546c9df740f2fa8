package aws_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/aws"
	"github.com/lanyard-dev/lanyard/auth/internal/rig"
	cloudaws "github.com/lanyard-dev/lanyard/cloudtest/aws"
	"github.com/lanyard-dev/lanyard/cloudtest/fault"
)

// TestSlowPathOfATenant checks that a tenant's slow proxy or slow STS endpoint delays no other
// tenant. Each slow tenant has a session of a role in the same AWS account. With this session, the
// tenant assumes a second role. The call for the second role goes over the tenant's proxy or STS
// endpoint, and never ends. The number of these calls is the maximum that Lanyard makes at once for
// one AWS account. During these calls, a cluster identity assumes a role with a session of the same
// account. The cluster identity must get the role's session in time.
func TestSlowPathOfATenant(t *testing.T) {
	const slow = 20
	for name, path := range map[string]func(w *world) auth.Option{
		"proxy":        func(w *world) auth.Option { return auth.WithProxyURL(w.Proxy) },
		"STS endpoint": func(*world) auth.Option { return auth.WithSTSEndpoint("https://sts." + region + ".amazonaws.com") },
	} {
		t.Run(name, func(t *testing.T) {
			w, account, reader := ownChainWorld(t)
			rig.Must(t, w.Cloud.AWS().PutRole(accountID, cloudaws.Role{
				Name:        "lent",
				TrustPolicy: policy(map[string]any{"Effect": "Allow", "Principal": map[string]any{"AWS": accountID}, "Action": "sts:AssumeRole"}),
			}))
			session, err := auth.GetToken(t.Context(), w.aws, w.As(account)...)
			rig.Must(t, err)

			w.Fault(t, fault.Fault{Service: "sts", Operation: "AssumeRole", Kind: fault.Latency, Delay: time.Hour, Count: slow})
			ctx, cancel := context.WithCancel(t.Context())
			var all sync.WaitGroup
			defer all.Wait()
			defer cancel()
			for i := range slow {
				name := fmt.Sprint("slow-", i)
				role := w.roleFor(t, name, "system:serviceaccount:"+name+":app")
				chain := assuming(rig.ServiceAccount(name, "app", map[string]string{aws.RoleAnnotation: role}), reader)
				all.Go(func() {
					if _, err := auth.GetToken(ctx, w.aws, rig.Subject(chain, w.Sign), path(w)); ctx.Err() == nil {
						t.Errorf("a call of the slow tenant ended: %v", err)
						cancel()
					}
				})
			}
			for len(w.Cloud.Faults().List()) > 0 { // wait until all slow calls are in progress
				if ctx.Err() != nil {
					t.FailNow()
				}
				time.Sleep(time.Millisecond)
			}
			short, stop := context.WithTimeout(t.Context(), 5*time.Second)
			defer stop()
			identity := identityOf(t, "lent", aws.SessionRequest{Source: "root", RoleARN: "arn:aws:iam::" + accountID + ":role/lent"})
			source := func(string) (auth.Proof, error) { return session, nil }
			_, err = auth.GetToken(short, w.aws, auth.WithSubject(identity.Subject, lender{identity, source}), auth.WithTenant("tenant-b"))
			rig.Must(t, err)
		})
	}
}

// TestPanicFreesPlace checks that a call to AWS STS that panics frees its place. More calls panic
// than the account's budget has places. The next call must still get a place.
func TestPanicFreesPlace(t *testing.T) {
	w, account, _ := ownChainWorld(t)
	rig.Must(t, w.Cloud.AWS().PutRole(accountID, cloudaws.Role{
		Name:        "lent",
		TrustPolicy: policy(map[string]any{"Effect": "Allow", "Principal": map[string]any{"AWS": accountID}, "Action": "sts:AssumeRole"}),
	}))
	identity := identityOf(t, "lent", aws.SessionRequest{Source: "root", RoleARN: "arn:aws:iam::" + accountID + ":role/lent"})
	session, err := auth.GetToken(t.Context(), w.aws, w.As(account)...)
	rig.Must(t, err)

	broken, proxy := true, w.Base.Proxy
	w.Base.Proxy = func(r *http.Request) (*url.URL, error) {
		if broken {
			panic("broken")
		}
		return proxy(r)
	}
	w.aws = w.provider(t, aws.Config{Region: region})
	get := func() (err error) {
		ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
		defer stop()
		defer func() {
			if reason := recover(); reason != nil {
				err = fmt.Errorf("panic: %v", reason)
			}
		}()
		_, err = auth.GetToken(ctx, w.aws, auth.WithSubject(identity.Subject, lender{identity, func(string) (auth.Proof, error) { return session, nil }}))
		return err
	}
	for range 21 {
		if err := get(); err == nil || err.Error() != "panic: broken" {
			t.Fatalf("the call did not panic: %v", err)
		}
	}
	broken = false
	rig.Must(t, get())
}

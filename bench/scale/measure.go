package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/cloudtest/aws"
	"github.com/lanyard-dev/lanyard/examples"
	"github.com/lanyard-dev/lanyard/internal/local"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	objectsPerAccount    = 10
	accountsPerNamespace = 10
	repository           = "tenant-a/app"
	tag                  = "1.0.0"
	// startTimeout bounds the time until all objects are pulled.
	startTimeout = 30 * time.Minute
	// scrapeTimeout bounds one reading of metrics.
	scrapeTimeout = 30 * time.Second
)

// result is one run.
type result struct {
	objects, identities int
	start               time.Duration // until all objects were pulled
	startAPI            float64       // calls to the Kubernetes API until then

	window          time.Duration // what follows was counted in
	resident, heap  float64       // bytes, at its end
	cpu             time.Duration
	reconciliations float64
	api             float64 // calls to the Kubernetes API
	apiForTokens    float64 // of them those for proofs: reads of a ServiceAccount and requests for its token
	exchanges       float64 // at AWS STS
	needed          float64 // exchanges, if each identity's token is got anew exactly when it is due
}

// perNeeded is 1 where each identity's token was got anew exactly when it was due, and never otherwise.
func (r result) perNeeded() float64 { return r.exchanges / r.needed }

// check fails when the cache did not do what the table is to show. Tokens are got anew when they are next used after
// they became due, a little later than that, so that slightly less than one is expected.
func (r result) check() error {
	if ratio := r.perNeeded(); ratio < 0.85 || ratio > 1.02 {
		return fmt.Errorf("%d objects: %.0f exchanges where %.0f were due", r.objects, r.exchanges, r.needed)
	}
	return nil
}

func measure(ctx context.Context, s settings, n int, progress io.Writer) (_ result, err error) {
	dir, err := os.MkdirTemp("", "lanyard-scale-")
	if err != nil {
		return result{}, err
	}
	defer func() {
		if err == nil {
			err = os.RemoveAll(dir)
		}
	}()
	accounts := n / objectsPerAccount
	cfg, err := local.ParseCloud(examples.Cloud())
	if err != nil {
		return result{}, err
	}
	for i := range accounts {
		cfg.AWS.Accounts[0].Roles = append(cfg.AWS.Accounts[0].Roles, role(i))
	}
	world, err := local.Start(ctx, local.Options{Dir: filepath.Join(dir, "world"), ControlPlane: s.controlPlane, Cloud: cfg})
	if err != nil {
		return result{}, err
	}
	defer func() {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		if stopErr := world.Stop(stopping); err == nil {
			err = stopErr
		}
	}()
	artifacts, err := examples.Artifacts()
	if err != nil {
		return result{}, err
	}
	if _, err := world.PushAll(ctx, artifacts, tag); err != nil {
		return result{}, err
	}
	if err := world.InstallChart(ctx, map[string]any{"tokenCache": map[string]any{"maxDuration": s.tokenLife.String()}}); err != nil {
		return result{}, err
	}
	if err := populate(ctx, world.Client(), s, n); err != nil {
		return result{}, err
	}
	_, _ = fmt.Fprintln(progress, "  objects are created; the controller starts")

	begin := time.Now()
	controller, err := world.StartController(ctx, local.ControllerOptions{Binary: s.controller})
	if err != nil {
		return result{}, err
	}
	if err := awaitPulled(ctx, world, n); err != nil {
		return result{}, err
	}
	r := result{objects: n, identities: accounts, start: time.Since(begin), window: s.window}
	own := http.Client{Transport: &http.Transport{}, Timeout: scrapeTimeout} // no proxy
	defer own.CloseIdleConnections()
	admin, err := rest.HTTPClientFor(world.Config())
	if err != nil {
		return result{}, err
	}
	defer admin.CloseIdleConnections()
	started, err := scrape(ctx, &own, controller.MetricsURL)
	if err != nil {
		return result{}, err
	}
	r.startAPI = started.sum("rest_client_requests_total")
	_, _ = fmt.Fprintf(progress, "  all are pulled after %s; watching for %s\n", r.start.Round(time.Second), s.window)

	// What began together is spread over one interval first.
	if err := sleep(ctx, s.interval); err != nil {
		return result{}, err
	}
	before, err := scrape(ctx, &own, controller.MetricsURL)
	if err != nil {
		return result{}, err
	}
	serverBefore, err := scrape(ctx, admin, world.Config().Host)
	if err != nil {
		return result{}, err
	}
	exchanged := exchanges(world)
	if err := sleep(ctx, s.window); err != nil {
		return result{}, err
	}
	after, err := scrape(ctx, &own, controller.MetricsURL)
	if err != nil {
		return result{}, err
	}
	serverAfter, err := scrape(ctx, admin, world.Config().Host)
	if err != nil {
		return result{}, err
	}
	r.exchanges = exchanges(world) - exchanged
	r.needed = float64(accounts) * s.window.Seconds() / s.due().Seconds()
	r.resident, r.heap = after.sum("process_resident_memory_bytes"), after.sum("go_memstats_heap_inuse_bytes")
	r.cpu = time.Duration((after.sum("process_cpu_seconds_total") - before.sum("process_cpu_seconds_total")) * float64(time.Second))
	r.reconciliations = after.sum("controller_runtime_reconcile_total") - before.sum("controller_runtime_reconcile_total")
	r.api = after.sum("rest_client_requests_total") - before.sum("rest_client_requests_total")
	r.apiForTokens = serverAfter.proofs() - serverBefore.proofs()
	return r, r.check()
}

// names are where the i-th account lives. Ten accounts share a namespace.
func names(i int) (namespace, account string) {
	return fmt.Sprintf("scale-%04d", i/accountsPerNamespace), fmt.Sprintf("sa-%05d", i)
}

// role is the i-th account's role: it trusts this account and may pull.
func role(i int) aws.Role {
	namespace, account := names(i)
	issuer := strings.TrimPrefix(local.Issuer, "https://")
	document := func(statements ...map[string]any) json.RawMessage {
		data, err := json.Marshal(map[string]any{"Version": "2012-10-17", "Statement": statements})
		if err != nil {
			panic(err) // maps of strings
		}
		return data
	}
	return aws.Role{
		Name: account,
		TrustPolicy: document(map[string]any{
			"Effect": "Allow", "Action": "sts:AssumeRoleWithWebIdentity",
			"Principal": map[string]any{"Federated": "arn:aws:iam::" + local.Account + ":oidc-provider/" + issuer},
			"Condition": map[string]any{"StringEquals": map[string]any{
				issuer + ":sub": "system:serviceaccount:" + namespace + ":" + account, issuer + ":aud": "sts.amazonaws.com",
			}},
		}),
		Policies: map[string]json.RawMessage{"pull": document(
			map[string]any{"Effect": "Allow", "Action": "ecr:GetAuthorizationToken", "Resource": "*"},
			map[string]any{
				"Effect": "Allow", "Action": []string{"ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"},
				"Resource": "arn:aws:ecr:" + local.Region + ":" + local.Account + ":repository/" + repository,
			},
		)},
	}
}

// populate creates namespaces, accounts and objects, as the administrator.
func populate(ctx context.Context, c client.Client, s settings, n int) error {
	accounts := n / objectsPerAccount
	create := func(count int, object func(int) client.Object) error {
		group, ctx := errgroup.WithContext(ctx)
		group.SetLimit(16)
		for i := range count {
			group.Go(func() error { return c.Create(ctx, object(i)) })
		}
		return group.Wait()
	}
	if err := create((accounts+accountsPerNamespace-1)/accountsPerNamespace, func(i int) client.Object {
		namespace, _ := names(i * accountsPerNamespace)
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	}); err != nil {
		return err
	}
	if err := create(accounts, func(i int) client.Object {
		namespace, account := names(i)
		return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: account,
			Annotations: map[string]string{"eks.amazonaws.com/role-arn": "arn:aws:iam::" + local.Account + ":role/" + account},
		}}
	}); err != nil {
		return err
	}
	return create(n, func(i int) client.Object {
		namespace, account := names(i / objectsPerAccount)
		return &v1alpha1.OCIRepository{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "object-" + strconv.Itoa(i)},
			Spec: v1alpha1.OCIRepositorySpec{
				URL:      "oci://" + local.Account + ".dkr.ecr." + local.Region + ".amazonaws.com/" + repository,
				Ref:      &v1alpha1.OCIRepositoryRef{Tag: tag},
				Provider: v1alpha1.ProviderAWS, ServiceAccountName: account, Interval: metav1.Duration{Duration: s.interval},
			},
		}
	})
}

func awaitPulled(ctx context.Context, world *local.World, n int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("not all objects were pulled within %s", startTimeout))
	defer cancel()
	for {
		if err := world.Err(); err != nil {
			return err
		}
		var list v1alpha1.OCIRepositoryList
		if err := world.Client().List(ctx, &list); err != nil {
			return err
		}
		ready := 0
		for i := range list.Items {
			if apimeta.IsStatusConditionTrue(list.Items[i].Status.Conditions, "Ready") {
				ready++
			}
		}
		if ready == n {
			return nil
		}
		if err := sleep(ctx, time.Second); err != nil {
			return fmt.Errorf("%d of %d objects are pulled: %w", ready, n, err)
		}
	}
}

// exchanges are those that AWS STS has granted.
func exchanges(world *local.World) float64 {
	granted := 0.0
	for _, total := range world.Cloud().Journal().Totals() {
		if total.Service == "sts" && total.Operation == "AssumeRoleWithWebIdentity" && total.Code == "" {
			granted += float64(total.Count)
		}
	}
	return granted
}

// samples are metrics in Prometheus' text format, a line each.
type samples []string

// sum adds up the series of a metric that have all of these labels, each written name="value".
func (s samples) sum(metric string, labels ...string) float64 {
	total := 0.0
series:
	for _, line := range s {
		rest, found := strings.CutPrefix(line, metric)
		if !found || rest == "" || rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		for _, label := range labels {
			if !strings.Contains(rest, "{"+label) && !strings.Contains(rest, ","+label) {
				continue series
			}
		}
		if i := strings.LastIndexByte(rest, '}'); i >= 0 {
			rest = rest[i+1:]
		}
		if value, err := strconv.ParseFloat(strings.Fields(rest)[0], 64); err == nil {
			total += value
		}
	}
	return total
}

// proofs are the calls that the API server counted for proofs: each exchange reads the account and requests its token.
func (s samples) proofs() float64 {
	const requests, accounts = "apiserver_request_total", `resource="serviceaccounts"`
	return s.sum(requests, accounts, `subresource=""`, `verb="GET"`) + s.sum(requests, accounts, `subresource="token"`, `verb="POST"`)
}

// scrape reads a server's metrics.
func scrape(ctx context.Context, c *http.Client, base string) (samples, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	res, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("metrics: HTTP %d", res.StatusCode)
	}
	var lines samples
	scanner := bufio.NewScanner(res.Body)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		if line := scanner.Text(); line != "" && line[0] != '#' {
			lines = append(lines, line)
		}
	}
	return lines, scanner.Err()
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

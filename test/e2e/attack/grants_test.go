package attack

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	toolswatch "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/internal/local"
	"github.com/lanyard-dev/lanyard/internal/report"
)

// The cloud identities of the demonstration's tenants.
const (
	roleA        = "arn:aws:iam::" + local.Account + ":role/tenant-a-ecr"
	roleB        = "arn:aws:iam::" + local.Account + ":role/tenant-b-ecr"
	applicationA = "d6e4fc00-c5b2-4a72-9f84-6a92e3f06b08"
	applicationB = "4a7272f9-f186-41af-9f84-6a92e32d7cd0"
	accountA     = "tenant-a-bucket@my-org-project.iam.gserviceaccount.com"
	// The identities of tenant-c trust Lanyard's own issuer.
	roleC        = "arn:aws:iam::" + local.Account + ":role/tenant-c-ecr"
	applicationC = "0f6d2a31-9c1e-4a0b-8f0e-6a92e3f06b08"
	accountC     = "tenant-c-bucket@my-org-project.iam.gserviceaccount.com"
)

// grantsOfClouds returns granted calls in which a hostile caller used an identity or content of
// tenant-a or tenant-c. It ignores calls up to the given journal number.
func grantsOfClouds(after uint64) (grants []string) {
	for _, call := range world.Cloud().Journal().Calls(journal.Filter{Verdict: journal.Granted, After: after}) {
		identity := slices.Contains([]string{roleA, applicationA, accountA, roleC, applicationC, accountC}, call.Role)
		content := slices.ContainsFunc([]string{"tenant-a/app", "/buckets/tenant-a-", "tenant-c/app", "/buckets/tenant-c-"}, func(part string) bool {
			return strings.Contains(call.Resource, part)
		})
		// Azure's data endpoint serves everybody who has a link that the registry signed. It does
		// not know the caller, so calls to it do not count as access to content.
		linked := strings.HasSuffix(call.Host, ".data.azurecr.io")
		if (identity || content && !linked) && !isHonest(call.Subject) && !isHonest(call.Principal) {
			grants = append(grants, fmt.Sprintf("%+v", call))
		}
	}
	return grants
}

// isHonest reports whether a caller is tenant-a, tenant-c or the demonstration's publisher. The
// argument name is the subject or the principal of a call in the journal.
func isHonest(name string) bool {
	return slices.ContainsFunc([]string{
		"system:serviceaccount:tenant-a:", applicationA + "@",
		"arn:aws:sts::" + local.Account + ":assumed-role/tenant-a-ecr/", "arn:aws:sts::210987654321:assumed-role/tenant-a-partner/",
		"arn:aws:sts::" + local.Account + ":assumed-role/" + newRole + "/",
		"arn:aws:sts::" + local.Account + ":assumed-role/" + newChained + "/",
		"serviceAccount:" + accountA, ownSubject + "tenant-c:", "arn:aws:sts::" + local.Account + ":assumed-role/tenant-c-ecr/", applicationC + "@",
		"serviceAccount:" + accountC,
	}, func(prefix string) bool { return strings.HasPrefix(name, prefix) }) ||
		strings.Contains(name, "/subject/ns/tenant-a/sa/") || strings.Contains(name, "/subject/"+ownSubject+"tenant-c:") || strings.HasSuffix(name, ":user/"+local.Publisher)
}

// statuses records the identities and artifacts in the statuses of hostile tenants' objects.
type statuses struct {
	mu      sync.Mutex // guards claims and digests
	claims  []string   // objects that are Ready with an identity of tenant-a
	digests map[string]string
}

// watchStatuses watches all objects until the test ends. A watch shows each status that was ever
// written. The API server ends the watches of slow clients; the watches then continue after the
// last event.
func watchStatuses(t *testing.T) *statuses {
	t.Helper()
	s := &statuses{digests: map[string]string{}}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(func() { stop(); running.Wait() })
	for _, kind := range kinds.All().Where(kinds.Kind.Fetches) {
		list := kind.NewList()
		must(t, "list the objects", objects.List(ctx, list))
		statuses, err := toolswatch.NewRetryWatcherWithContext(ctx, list.GetResourceVersion(), &cache.ListWatch{
			WatchFuncWithContext: func(ctx context.Context, from metav1.ListOptions) (watch.Interface, error) {
				return objects.Watch(ctx, list, &client.ListOptions{Raw: &from})
			},
		})
		must(t, "watch the objects", err)
		running.Go(func() {
			defer statuses.Stop()
			for e := range statuses.ResultChan() {
				if o, ok := e.Object.(report.Resource); ok && o.GetNamespace() != honestNamespace {
					s.see(o)
				}
			}
			if ctx.Err() == nil {
				t.Error("the watch of the hostile objects ended")
			}
		})
	}
	return s
}

func (s *statuses) see(o report.Resource) {
	name := o.GetNamespace() + "/" + o.GetName()
	s.mu.Lock()
	defer s.mu.Unlock()
	id, ready := report.Read(kinds.All(), o).Used(), apimeta.IsStatusConditionTrue(o.GetStatus().Conditions, meta.ConditionReady)
	if id != nil && ready && (id.CloudIdentity == roleA || id.CloudIdentity == accountA || strings.HasSuffix(id.CloudIdentity, "/"+applicationA)) {
		s.claims = append(s.claims, fmt.Sprintf("%s is Ready as %s", name, id.CloudIdentity))
	}
	if a := artifact(o); a != nil {
		s.digests[a.Digest] = name
	}
}

// take describes the leaks since its last call. A leak is a hostile object whose status showed an
// identity or an artifact of the honest tenant. The argument honest has the digests of the honest
// tenant's artifacts.
func (s *statuses) take(honest map[string]bool) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	grants := s.claims
	for digest, name := range s.digests {
		if honest[digest] {
			grants = append(grants, fmt.Sprintf("%s has artifact %s", name, digest))
		}
	}
	s.claims, s.digests = nil, map[string]string{}
	return grants
}

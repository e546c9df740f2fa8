package imagerepository

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
	"github.com/lanyard-dev/lanyard/internal/controller/access"
)

// plan is a spec after it was parsed and checked.
type plan struct {
	repository oci.Repository
	// list is the spec's exclusionList, or the default list.
	list       []string
	exclusions oci.Exclusions
}

// Decide implements tenant.Kind.
func (kind) Decide(_ context.Context, o *v1alpha1.ImageRepository, _ access.Call) (plan, error) {
	p := plan{list: o.Spec.ExclusionList}
	if p.list == nil {
		// The object was stored before the schema had a default for exclusionList.
		p.list = []string{v1alpha1.DefaultTagExclusion}
	}
	var err error
	if p.repository, err = oci.ParseImage(o.Spec.Image); err != nil {
		return plan{}, err
	}
	if p.exclusions, err = oci.ParseExclusions(p.list); err != nil {
		return plan{}, err
	}
	return p, nil
}

// Act implements tenant.Kind. It lists the tags and writes their summary into the status.
func (k kind) Act(ctx context.Context, o *v1alpha1.ImageRepository, p plan, call access.Call) (news string, err error) {
	var scan oci.Scan
	err = k.registries.Ask(ctx, call, &o.Status.FetchStatus, p.repository, func(ctx context.Context, registry *oci.Client) (err error) {
		scan, err = registry.Scan(ctx, p.exclusions)
		return err
	})
	if err != nil {
		return "", err
	}
	found := &v1alpha1.ScanResult{
		TagCount: scan.Tags, ScanTime: metav1.NewTime(time.Now().UTC().Truncate(time.Second)), Revision: scan.Revision, LatestTags: scan.Latest,
	}
	image, last := p.repository.Image(), o.Status.LastScanResult
	if last != nil && last.Revision == found.Revision && o.Status.CanonicalImageName == image {
		// Keep the old time. Otherwise every scan would write to the cluster's database, and cause
		// an event for every watch.
		found.ScanTime = last.ScanTime
	}
	o.Status.CanonicalImageName, o.Status.ObservedExclusionList, o.Status.LastScanResult = image, p.list, found
	return "", nil
}

//go:build !concurrent

// These tests start no goroutine, so the race detector would only slow them down.

package objectstore_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/internal/artifact/objectstore"
	"github.com/lanyard-dev/lanyard/internal/artifact/objectstore/azblob"
	"github.com/lanyard-dev/lanyard/internal/artifact/objectstore/gcs"
	"github.com/lanyard-dev/lanyard/internal/artifact/objectstore/s3"
	"github.com/lanyard-dev/lanyard/internal/memory/reserve"
)

// onePage answers the first request with a page and fails all other requests.
type onePage struct {
	page string
	sent bool
}

func (o *onePage) RoundTrip(req *http.Request) (*http.Response, error) {
	if o.sent {
		return nil, errors.New("another request")
	}
	o.sent = true
	header := http.Header{"Content-Type": {"application/xml"}}
	return &http.Response{StatusCode: http.StatusOK, Header: header, Body: io.NopCloser(strings.NewReader(o.page)), Request: req}, nil
}

type service struct {
	name string
	open func(http.RoundTripper) (objectstore.Storage, error)
}

func services() []service {
	return []service{
		{"S3", func(next http.RoundTripper) (objectstore.Storage, error) {
			return s3.New(s3.Options{Bucket: "b", Endpoint: "s3.example", Region: "r", PathStyle: true, Transport: next})
		}},
		{"Azure", func(next http.RoundTripper) (objectstore.Storage, error) {
			return azblob.New(azblob.Options{Container: "c", Endpoint: "azure.example", Transport: next})
		}},
		{"Google", func(next http.RoundTripper) (objectstore.Storage, error) {
			return gcs.New(gcs.Options{Bucket: "b", Endpoint: "gcs.example", Transport: next})
		}},
	}
}

// allocated returns how many bytes are allocated to list the page with the service's client,
// garbage included. The error err is the listing's error.
func allocated(t *testing.T, ctx context.Context, of service, page string) (n int64, err error) {
	t.Helper()
	storage, err := of.open(&onePage{page: page})
	if err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, err = range storage.List(ctx, "") {
		if err != nil {
			break
		}
	}
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc), err
}

// maxListing bounds the bytes allocated for any page. Garbage counts too, so the result does not
// depend on when garbage is collected.
const maxListing = 128 << 20

// hostilePages returns pages that take as much memory as possible for their 4 MiB.
func hostilePages() map[string]string {
	fill := func(before, part, after string) string {
		return before + strings.Repeat(part, (4<<20-len(before)-len(after))/len(part)) + after
	}
	return map[string]string{
		"empty objects":                fill(`<ListBucketResult>`, `<Contents/>`, `</ListBucketResult>`),
		"a quote before objects":       fill(`"<ListBucketResult>`, `<Contents/>`, `</ListBucketResult>`),
		"attributes":                   fill(`<ListBucketResult `, `a="" `, `></ListBucketResult>`),
		"blobs":                        fill(`"<EnumerationResults><Blobs>`, `<Blob/>`, `</Blobs></EnumerationResults>`),
		"properties of blobs":          fill(`<EnumerationResults><Blobs>`, `<Blob><Properties/></Blob>`, `</Blobs></EnumerationResults>`),
		"metadata of blobs":            fill(`<EnumerationResults><Blobs><Blob><Metadata>`, `<a/>`, `</Metadata></Blob></Blobs></EnumerationResults>`),
		"depth":                        fill(`<ListBucketResult>`, `<a>`, ``),
		"one text":                     fill(`<ListBucketResult><Contents><Key>`, `&amp;`, `</Key></Contents></ListBucketResult>`),
		"one comment":                  fill(`<!--`, ` `, `--><ListBucketResult/>`),
		"a directive":                  fill(`<!DOCTYPE a [`, `"'" `, `]><ListBucketResult/>`),
		"as many objects as may be":    `<ListBucketResult>` + strings.Repeat(`<Contents/>`, 99_990) + `</ListBucketResult>`,
		"as many blobs as may be":      `<EnumerationResults><Blobs>` + strings.Repeat(`<Blob><Properties/></Blob>`, 33_300) + `</Blobs></EnumerationResults>`,
		"as many names as may be":      `<EnumerationResults><Blobs><Blob><Metadata>` + strings.Repeat(`<a/>`, 99_900) + `</Metadata></Blob></Blobs></EnumerationResults>`,
		"as many attributes as may be": `<EnumerationResults ` + strings.Repeat(`a="" `, 99_900) + `/>`,
		"as many items as may be":      `{"items":[` + strings.Repeat(`{},`, 49_990) + `{}]}`,
		"as many nulls as may be":      `{"items":[` + strings.Repeat(`null,`, 99_990) + `null]}`,
		"items":                        fill(`{"items":[`, `{},`, `{}]}`),
		"a number before items":        fill(`{"x":1e999,"items":[`, `null,`, `{}]}`),
		"arrays":                       fill(``, `[`, ``),
	}
}

// TestMemoryOfHostilePages checks that listing a page allocates at most maxListing bytes, whatever
// the page contains.
func TestMemoryOfHostilePages(t *testing.T) {
	for name, page := range hostilePages() {
		for _, service := range services() {
			if n, _ := allocated(t, t.Context(), service, page); n > maxListing {
				t.Errorf("%s at %s: %d MiB", name, service.name, n>>20)
			}
		}
	}
}

// TestRefusedPagesAreNotDecoded checks that a page with too many parts costs no more memory than
// the page's bytes. If a cloud's library decoded such a page, the library would need much more.
func TestRefusedPagesAreNotDecoded(t *testing.T) {
	for _, name := range []string{"empty objects", "a quote before objects", "attributes", "blobs", "depth"} {
		for _, service := range services() {
			if n, _ := allocated(t, t.Context(), service, hostilePages()[name]); n > 12<<20 {
				t.Errorf("%s at %s: %d MiB", name, service.name, n>>20)
			}
		}
	}
}

// TestCostOfPages checks how much memory a listing takes from the program's pool. The listing must
// take at least a third of the bytes that the listing allocates. The rest is garbage: the decoders
// copy lists that grow. So the listing fails if the pool has less. Small pages may take less.
func TestCostOfPages(t *testing.T) {
	const small = 4 << 20
	tried := 0
	for name, page := range hostilePages() {
		for _, service := range services() {
			n, _ := allocated(t, t.Context(), service, page)
			if n < small {
				continue
			}
			tried++
			ctx, end := context.WithCancelCause(t.Context())
			ctx, closed := reserve.New(n/3).Open(ctx, "tenant", end)
			if _, err := allocated(t, ctx, service, page); !errors.Is(err, reserve.ErrEnded) {
				t.Errorf("%s at %s: %d MiB are allocated, but the listing needs less of the pool: %v", name, service.name, n>>20, err)
			}
			closed()
		}
	}
	if tried < 20 {
		t.Errorf("only %d pages need much memory", tried)
	}
}

// FuzzMemoryOfPages repeats the fuzzer's short input until it fills a page. So an input that gets
// past a bound gets past it many times. Each input tests only one service, to save time: go test
// reports a deadlock if one input takes more than ten seconds.
func FuzzMemoryOfPages(f *testing.F) {
	for _, seed := range []struct{ before, part, after string }{
		{`"<ListBucketResult>`, `<Contents/>`, `</ListBucketResult>`},
		{`<ListBucketResult `, `a="" `, `></ListBucketResult>`},
		{`<?xml version="1.0" encoding="utf-8"?><EnumerationResults><Blobs>`, `<Blob><Properties/></Blob>`, `</Blobs></EnumerationResults>`},
		{`{"x":1e999,"items":[`, `{},`, `{}]}`},
		{`{"items":[`, `{"name":"\""},`, `{}]}`},
	} {
		for i := range services() {
			f.Add(uint(i), seed.before, seed.part, seed.after)
		}
	}
	f.Fuzz(func(t *testing.T, i uint, before, part, after string) {
		page := before + strings.Repeat(part, (4<<20)/max(len(part), 1)) + after
		service := services()[i%uint(len(services()))]
		if n, _ := allocated(t, t.Context(), service, page); n > maxListing {
			t.Errorf("%s: %d MiB", service.name, n>>20)
		}
	})
}

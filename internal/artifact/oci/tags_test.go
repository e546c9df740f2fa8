package oci_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
	"github.com/lanyard-dev/lanyard/internal/artifact/origin"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// lister is a registry. It answers each request for the list of tags by calling page, and counts
// these requests in asked.
type lister struct {
	asked int
	page  func(w http.ResponseWriter, r *http.Request, asked int)
}

func (l *lister) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/v2/":
		_, _ = io.WriteString(w, "{}")
	case "/v2/team/app/tags/list":
		l.asked++
		l.page(w, r, l.asked)
	default:
		http.Error(w, "an unknown route", http.StatusTeapot)
	}
}

func writeTags(w http.ResponseWriter, link string, tags ...string) {
	if link != "" {
		w.Header().Set("Link", "<"+link+`>; rel="next"`)
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"name": "team/app", "tags": tags})
}

// numbered returns count tags with consecutive numbers.
func numbered(from, count int) []string {
	tags := make([]string, count)
	for i := range tags {
		tags[i] = fmt.Sprintf("1.%06d.0", from+i)
	}
	return tags
}

// collect reads a whole list.
func collect(ctx context.Context, client *oci.Client) ([]string, error) {
	var tags []string
	for tag, err := range client.Tags(ctx) {
		if err != nil {
			return tags, err
		}
		tags = append(tags, tag)
	}
	return tags, nil
}

func TestTagsArePagedAndBounded(t *testing.T) {
	const pages = 30
	f, digest := artifact("layer")
	asked := 0
	f.override = func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "/tags/list") {
			return false
		}
		asked++
		var tags []string
		for i := range 1000 {
			tags = append(tags, fmt.Sprintf("%d.%d.0", asked, i))
		}
		link := ""
		if asked < pages {
			link = fmt.Sprintf("/v2/team/app/tags/list?n=1000&last=%d", asked)
		}
		writeTags(w, link, tags...)
		return true
	}
	n := serve(t, map[string]http.Handler{registryHost: f})
	client := connect(t, n, appURL).Limit(oci.TagLimits{Tags: 1000 * pages})
	f.manifests["30.999.0"] = f.manifests["latest"]
	got, err := client.Resolve(t.Context(), oci.Reference{SemVer: "*"})
	if err != nil || got.Revision() != "30.999.0@"+digest || asked != pages {
		t.Errorf("%v, %v after %d pages", got, err, asked)
	}
	asked = 0
	_, err = connect(t, n, appURL).Limit(oci.TagLimits{Tags: 2500}).Resolve(t.Context(), oci.Reference{SemVer: "*"})
	if origin.CodeOf(err) != origin.CodeTooLarge || asked != 3 || !strings.Contains(err.Error(), "spec.ref.semver") {
		t.Errorf("bounded: %v after %d pages", err, asked)
	}
}

// TestTagsOfRealRegistries reads pages in the form that the clouds' registries send, according to
// their documentation and their users.
func TestTagsOfRealRegistries(t *testing.T) {
	want := numbered(0, 2500)
	rest := func(query url.Values, cursor string) []string {
		from := 0
		if at := query.Get(cursor); at != "" {
			_, _ = fmt.Sscanf(at, "cursor-%d", &from)
		}
		return want[from:]
	}
	for registry, page := range map[string]func(w http.ResponseWriter, r *http.Request, asked int){
		"ECR: an absolute link with an opaque cursor, and no n in it": func(w http.ResponseWriter, r *http.Request, asked int) {
			tags := rest(r.URL.Query(), "last")
			if asked == 1 && r.URL.Query().Get("n") != "1000" {
				t.Errorf("asked with %s", r.URL.RawQuery)
			}
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			if len(tags) > 100 {
				writeTags(w, fmt.Sprintf("https://%s/v2/team/app/tags/list?last=cursor-%d", registryHost, len(want)-len(tags)+100), tags[:100]...)
				return
			}
			writeTags(w, "", tags...)
		},
		"ACR: a relative link, and pages of a thousand whatever was asked for": func(w http.ResponseWriter, r *http.Request, _ int) {
			tags := rest(r.URL.Query(), "last")
			if len(tags) > 1000 {
				writeTags(w, fmt.Sprintf("/v2/team/app/tags/list?last=cursor-%d&n=1000&orderby=", len(want)-len(tags)+1000), tags[:1000]...)
				return
			}
			writeTags(w, "", tags...)
		},
		"Artifact Registry: one page, which describes every image first": func(w http.ResponseWriter, _ *http.Request, _ int) {
			images := map[string]any{}
			for _, tag := range want {
				images[digestOf(tag)] = map[string]any{
					"imageSizeBytes": "1234567", "layerId": "", "mediaType": "application/vnd.oci.image.manifest.v1+json",
					"tag": []string{tag}, "timeCreatedMs": "1700000000000", "timeUploadedMs": "1700000000000",
				}
			}
			_ = json.NewEncoder(w).Encode(map[string]any{"child": []string{"sub"}, "manifest": images, "name": "team/app", "tags": want})
		},
		"Quay: another name for the cursor": func(w http.ResponseWriter, r *http.Request, _ int) {
			tags := rest(r.URL.Query(), "next_page")
			if len(tags) > 50 {
				writeTags(w, fmt.Sprintf("/v2/team/app/tags/list?next_page=cursor-%d&n=50", len(want)-len(tags)+50), tags[:50]...)
				return
			}
			writeTags(w, "", tags...)
		},
		"behind a proxy that ends TLS: a link with http": func(w http.ResponseWriter, r *http.Request, _ int) {
			tags := rest(r.URL.Query(), "last")
			if len(tags) > 2000 {
				writeTags(w, fmt.Sprintf("http://%s/v2/team/app/tags/list?last=cursor-%d", registryHost, len(want)-len(tags)+500), tags[:500]...)
				return
			}
			writeTags(w, "", tags...)
		},
		"a last page without a tag": func(w http.ResponseWriter, _ *http.Request, asked int) {
			if asked == 1 {
				writeTags(w, "/v2/team/app/tags/list?last=x", want...)
				return
			}
			_, _ = io.WriteString(w, `{"name":"team/app","tags":null}`)
		},
	} {
		n := serve(t, map[string]http.Handler{registryHost: &lister{page: page}})
		got, err := collect(t.Context(), connect(t, n, appURL))
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %d tags, %v", registry, len(got), err)
		}
		for _, request := range n.sent(registryHost) {
			if request.URL.Scheme != "https" {
				t.Errorf("%s: asked %s", registry, request.URL)
			}
		}
	}
}

// TestTagsOfDistribution reads pages of the distribution project's own registry. Each page begins
// after the last tag of the page before.
func TestTagsOfDistribution(t *testing.T) {
	n := serve(t, map[string]http.Handler{registryHost: basic(pageSize(distribution(t), "2"))})
	want := []string{"1.0.0", "1.1.0", "2.0.0", "latest", "sha256-0a.sig"}
	for _, tag := range want {
		ref, err := name.NewTag(registryHost+"/team/app:"+tag, name.StrictValidation)
		must.Succeed(t, err)
		must.Succeed(t, remote.Write(ref, empty.Image, remote.WithTransport(n), remote.WithAuth(oci.Basic(username, password))))
	}
	client := connect(t, n, appURL)
	if got, err := collect(t.Context(), client); err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	unsigned, err := oci.ParseExclusions([]string{`^.*\.sig$`})
	must.Succeed(t, err)
	scan, err := client.Scan(t.Context(), unsigned)
	if err != nil || scan.Tags != 4 || !slices.Equal(scan.Latest, []string{"latest", "2.0.0", "1.1.0", "1.0.0"}) ||
		scan.Revision != digestOf("1.0.0\n1.1.0\n2.0.0\nlatest\n") {
		t.Errorf("%+v, %v", scan, err)
	}
	if _, err := connect(t, n, "oci://"+registryHost+"/team/none").Scan(t.Context(), unsigned); origin.CodeOf(err) != origin.CodeNotFound {
		t.Errorf("no repository: %v", err)
	}
}

// pageSize makes a registry send smaller pages than requested. A registry's administrator may do
// the same.
func pageSize(next http.Handler, size string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if query := r.URL.Query(); query.Has("n") {
			query.Set("n", size)
			r.URL.RawQuery = query.Encode()
		}
		next.ServeHTTP(w, r)
	})
}

// TestTagsThatNeverEnd checks that a list without end is stopped. The error says which bound was
// reached.
func TestTagsThatNeverEnd(t *testing.T) {
	endless := func(tags func(asked int) []string) func(http.ResponseWriter, *http.Request, int) {
		return func(w http.ResponseWriter, _ *http.Request, asked int) {
			writeTags(w, fmt.Sprintf("/v2/team/app/tags/list?last=%d", asked), tags(asked)...)
		}
	}
	none := func(int) []string { return []string{} }
	for what, c := range map[string]struct {
		page   func(w http.ResponseWriter, r *http.Request, asked int)
		limits oci.TagLimits
		code   origin.Code
		text   string
		most   int // largest number of pages
	}{
		"the same link again": {
			page: func(w http.ResponseWriter, _ *http.Request, asked int) {
				writeTags(w, "/v2/team/app/tags/list?last=x", numbered(asked, 1)...)
			},
			code: origin.CodeProtocol, text: "leads back", most: 2,
		},
		"a link to the page itself": {
			page: func(w http.ResponseWriter, r *http.Request, asked int) {
				writeTags(w, r.URL.String(), numbered(asked, 1)...)
			},
			code: origin.CodeProtocol, text: "leads back", most: 1,
		},
		"a circle of three": {
			page: func(w http.ResponseWriter, _ *http.Request, asked int) {
				writeTags(w, fmt.Sprintf("/v2/team/app/tags/list?last=%d", asked%3), numbered(asked, 1)...)
			},
			code: origin.CodeProtocol, text: "leads back", most: 4,
		},
		"ever new tags": {
			page: endless(func(asked int) []string { return numbered(1000*asked, 1000) }),
			code: origin.CodeTooLarge, text: "more than 100000 tags", most: 101,
		},
		"ever the same tags under new links": {
			page: endless(func(int) []string { return numbered(0, 1000) }),
			code: origin.CodeTooLarge, text: "more than 100000 tags", most: 101,
		},
		"one tag a page": {
			page: endless(func(asked int) []string { return numbered(asked, 1) }), limits: oci.TagLimits{Pages: 50},
			code: origin.CodeTooLarge, text: "more than 50 pages", most: 50,
		},
		"pages without a tag": {page: endless(none), code: origin.CodeProtocol, text: "without a tag", most: 11},
		"a tag after every ten pages without one": {
			page: endless(func(asked int) []string { return numbered(asked, (asked%11)/10) }), limits: oci.TagLimits{Pages: 200},
			code: origin.CodeTooLarge, text: "more than 200 pages", most: 200,
		},
		"a page that does not end": {
			page: func(w http.ResponseWriter, _ *http.Request, _ int) {
				_, _ = io.WriteString(w, `{"tags":["1"`)
				for more := []byte(strings.Repeat(`,"2"`, 1000)); ; {
					if _, err := w.Write(more); err != nil {
						return
					}
				}
			},
			code: origin.CodeTooLarge, text: "more than 100000 tags", most: 1,
		},
		"a page of something else that does not end": {
			page: func(w http.ResponseWriter, _ *http.Request, _ int) {
				_, _ = io.WriteString(w, `{"manifest":[1`)
				for more := []byte(strings.Repeat(`,2`, 1000)); ; {
					if _, err := w.Write(more); err != nil {
						return
					}
				}
			},
			limits: oci.TagLimits{Bytes: 1 << 20}, code: origin.CodeTooLarge, text: "more than 1048576 bytes", most: 1,
		},
		"pages that are too large together": {
			page: func(w http.ResponseWriter, _ *http.Request, asked int) {
				w.Header().Set("Link", fmt.Sprintf(`</v2/team/app/tags/list?last=%d>; rel="next"`, asked))
				_, _ = fmt.Fprintf(w, `{"filler":%q,"tags":["t%d"]}`, strings.Repeat("x", 50_000), asked)
			},
			limits: oci.TagLimits{Bytes: 1 << 20}, code: origin.CodeTooLarge, text: "more than 1048576 bytes", most: 21,
		},
		"a value that does not end": {
			page: func(w http.ResponseWriter, _ *http.Request, _ int) {
				_, _ = io.WriteString(w, `{"tags":["`)
				for more := bytes.Repeat([]byte("a"), 4096); ; {
					if _, err := w.Write(more); err != nil {
						return
					}
				}
			},
			code: origin.CodeProtocol, text: "a value of more than", most: 1,
		},
		"blanks that do not end": {
			page: func(w http.ResponseWriter, _ *http.Request, _ int) {
				for more := bytes.Repeat([]byte(" "), 4096); ; {
					if _, err := w.Write(more); err != nil {
						return
					}
				}
			},
			code: origin.CodeProtocol, text: "a value of more than", most: 1,
		},
		"depth that does not end": {
			page: func(w http.ResponseWriter, _ *http.Request, _ int) {
				_, _ = io.WriteString(w, `{"manifest":`)
				for more := bytes.Repeat([]byte("["), 4096); ; {
					if _, err := w.Write(more); err != nil {
						return
					}
				}
			},
			code: origin.CodeProtocol, text: "not the JSON", most: 1,
		},
	} {
		l := &lister{page: c.page}
		client := connect(t, serve(t, map[string]http.Handler{registryHost: l}), appURL).Limit(c.limits)
		_, err := collect(t.Context(), client)
		if origin.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.text) || l.asked > c.most {
			t.Errorf("%s: %v after %d pages; want %s %q after %d", what, err, l.asked, c.code, c.text, c.most)
		}
	}
}

// TestTagsThatDrip reads a list that arrives tag by tag. The listing ends when its context ends,
// and the error says that the list did not arrive in time.
func TestTagsThatDrip(t *testing.T) {
	l := &lister{page: func(w http.ResponseWriter, r *http.Request, _ int) {
		_, _ = io.WriteString(w, `{"tags":["0"`)
		for i := 1; ; i++ {
			if _, err := fmt.Fprintf(w, `,"%d"`, i); err != nil {
				return
			}
			w.(http.Flusher).Flush()
			select {
			case <-r.Context().Done():
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}}
	client := connect(t, serve(t, map[string]http.Handler{registryHost: l}), appURL)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	tags, err := collect(ctx, client)
	if origin.CodeOf(err) != origin.CodeUnreachable || !strings.Contains(err.Error(), "did not arrive in time") || len(tags) == 0 {
		t.Errorf("%d tags, %v", len(tags), err)
	}
}

func TestTagsThatAreRefused(t *testing.T) {
	body := func(text string) func(http.ResponseWriter, *http.Request, int) {
		return func(w http.ResponseWriter, _ *http.Request, _ int) { _, _ = io.WriteString(w, text) }
	}
	link := func(header string) func(http.ResponseWriter, *http.Request, int) {
		return func(w http.ResponseWriter, _ *http.Request, _ int) {
			w.Header().Set("Link", header)
			_, _ = io.WriteString(w, `{"tags":["a"]}`)
		}
	}
	for what, page := range map[string]func(http.ResponseWriter, *http.Request, int){
		"HTML":                      body("<html></html>"),
		"nothing":                   body(""),
		"an array":                  body(`["a"]`),
		"half":                      body(`{"tags":["a"`),
		"two":                       body(`{"tags":["a"]}{"tags":["b"]}`),
		"an object of other things": body(`{"errors":[{"code":"UNKNOWN"}]}`),
		"a number for a tag":        body(`{"tags":[1]}`),
		"null for a tag":            body(`{"tags":[null]}`),
		"an object for tags":        body(`{"tags":{}}`),
		"a tag with a slash":        body(`{"tags":["../../blobs/x"]}`),
		"a tag with a line feed":    body(`{"tags":["a\nb"]}`),
		"a tag that is empty":       body(`{"tags":[""]}`),
		"a tag of 129 bytes":        body(`{"tags":["` + strings.Repeat("a", 129) + `"]}`),

		"a link to another host":         link(`<https://evil.example.com/v2/team/app/tags/list?last=a>; rel="next"`),
		"a link without scheme":          link(`<//evil.example.com/v2/team/app/tags/list?last=a>; rel="next"`),
		"a link to another port":         link(`<https://registry.example.com:8443/v2/team/app/tags/list?last=a>; rel="next"`),
		"a link to another repository":   link(`</v2/other/secret/tags/list?last=a>; rel="next"`),
		"a link that climbs":             link(`</v2/team/app/tags/list/../../secret/tags/list?last=a>; rel="next"`),
		"a link with a password":         link(`<https://user:pass@registry.example.com/v2/team/app/tags/list?last=a>; rel="next"`),
		"a link that is no URL":          link(`<%zz>; rel="next"`),
		"a link without brackets":        link(`/v2/team/app/tags/list?last=a; rel="next"`),
		"a link that is not closed":      link(`</v2/team/app/tags/list?last=a; rel="next"`),
		"a link to nowhere":              link(`<>; rel="next"`),
		"a link without query":           link(`</v2/team/app/tags/list>; rel="next"`),
		"a link that is long":            link(`</v2/team/app/tags/list?last=` + strings.Repeat("a", 9000) + `>; rel="next"`),
		"a second link to another host":  link(`</v2/team/app/tags/list?first=a>; rel="first", <https://evil.example.com/>; rel="next"`),
		"a file":                         link(`<file:///etc/passwd?x>; rel="next"`),
		"a fragment of the list's start": link(`<#x>; rel="next"`),
	} {
		l := &lister{page: page}
		n := serve(t, map[string]http.Handler{registryHost: l})
		if _, err := collect(t.Context(), connect(t, n, appURL)); origin.CodeOf(err) != origin.CodeProtocol || l.asked != 1 {
			t.Errorf("%s: %v after %d pages", what, err, l.asked)
		}
		if sent := n.sent("evil.example.com"); len(sent) > 0 {
			t.Errorf("%s: asked %s", what, sent[0].URL)
		}
	}
	for what, header := range map[string]string{
		"a link to the page before":  `</v2/team/app/tags/list?last=a>; rel="prev"`,
		"a link to the first page":   `<https://evil.example.com/>; rel=first`,
		"an empty link":              "",
		"links of other kinds, many": `<a>; rel="prev", <b>; title="next"; rel=last`,
	} {
		l := &lister{page: link(header)}
		tags, err := collect(t.Context(), connect(t, serve(t, map[string]http.Handler{registryHost: l}), appURL))
		if err != nil || !slices.Equal(tags, []string{"a"}) {
			t.Errorf("%s: %v, %v", what, tags, err)
		}
	}
}

// TestTagsStop checks that a caller who stops the iteration stops the reading and gets no error.
func TestTagsStop(t *testing.T) {
	l := &lister{page: func(w http.ResponseWriter, _ *http.Request, asked int) {
		writeTags(w, fmt.Sprintf("/v2/team/app/tags/list?last=%d", asked), numbered(asked*10, 10)...)
	}}
	seen := 0
	for _, err := range connect(t, serve(t, map[string]http.Handler{registryHost: l}), appURL).Tags(t.Context()) {
		must.Succeed(t, err)
		if seen++; seen == 15 {
			break
		}
	}
	if l.asked != 2 {
		t.Errorf("%d pages", l.asked)
	}
}

// TestTagsAreThrottled refuses the second page. The error has the pause that the registry asks for,
// and no incomplete list is returned.
func TestTagsAreThrottled(t *testing.T) {
	l := &lister{page: func(w http.ResponseWriter, _ *http.Request, asked int) {
		if asked == 2 {
			w.Header().Set("Retry-After", "17")
			registryError(w, http.StatusTooManyRequests, "TOOMANYREQUESTS", "slow down")
			return
		}
		writeTags(w, "/v2/team/app/tags/list?last=x", "a")
	}}
	client := connect(t, serve(t, map[string]http.Handler{registryHost: l}), appURL)
	_, err := client.Scan(t.Context(), oci.Exclusions{})
	e, ok := err.(*origin.Error) //nolint:errorlint // the contract is this very type
	if !ok || e.Code != origin.CodeThrottled || e.RetryAfter != 17*time.Second || l.asked != 2 {
		t.Errorf("%v after %d pages", err, l.asked)
	}
}

// TestManyTagsTakeLittleMemory reads 50,000 tags. It checks that a scan takes at most 5 MiB of
// memory, and a search for a version at most 1 MiB.
func TestManyTagsTakeLittleMemory(t *testing.T) {
	const count, perPage = 50_000, 1000
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	var last uint64 // heap when the last page is requested
	l := &lister{page: func(w http.ResponseWriter, r *http.Request, _ int) {
		page := 0
		_, _ = fmt.Sscanf(r.URL.Query().Get("last"), "%d", &page)
		link := fmt.Sprintf("/v2/team/app/tags/list?last=%d", page+1)
		if page == count/perPage-1 {
			link, last = "", heap()
		}
		writeTags(w, link, numbered(perPage*page, perPage)...)
	}}
	client := connect(t, serve(t, map[string]http.Handler{registryHost: l}), appURL)
	takes := func(what string, most uint64, run func()) {
		t.Helper()
		l.asked = 0
		before := heap()
		run()
		if l.asked != count/perPage {
			t.Errorf("%s: %d pages", what, l.asked)
		}
		if last > before+most {
			t.Errorf("%s: %d bytes are in use before the last page, want at most %d", what, last-before, most)
		}
	}
	takes("a scan", 5<<20, func() {
		scan, err := client.Scan(t.Context(), oci.Exclusions{})
		if err != nil || scan.Tags != count || len(scan.Latest) != 10 || scan.Latest[0] != "1.049999.0" {
			t.Errorf("%+v, %v", scan, err)
		}
	})
	takes("a version", 1<<20, func() {
		if _, err := client.Resolve(t.Context(), oci.Reference{SemVer: ">=2"}); origin.CodeOf(err) != origin.CodeNoMatch || !strings.Contains(err.Error(), "none of 50000 tags") {
			t.Error(err)
		}
	})
}

// TestScanRevision checks that the revision depends only on the set of tags.
func TestScanRevision(t *testing.T) {
	scan := func(exclusions []string, pages ...[]string) oci.Scan {
		t.Helper()
		l := &lister{page: func(w http.ResponseWriter, _ *http.Request, asked int) {
			link := ""
			if asked < len(pages) {
				link = fmt.Sprintf("/v2/team/app/tags/list?last=%d", asked)
			}
			writeTags(w, link, pages[asked-1]...)
		}}
		e, err := oci.ParseExclusions(exclusions)
		must.Succeed(t, err)
		s, err := connect(t, serve(t, map[string]http.Handler{registryHost: l}), appURL).Scan(t.Context(), e)
		must.Succeed(t, err)
		return s
	}
	base := scan(nil, []string{"a", "b", "c"})
	for what, same := range map[string]oci.Scan{
		"another order":      scan(nil, []string{"c", "a", "b"}),
		"other pages":        scan(nil, []string{"a"}, []string{"b", "c"}),
		"a tag twice":        scan(nil, []string{"a", "b"}, []string{"b", "c"}),
		"one more, left out": scan([]string{"^x", `\.sig$`}, []string{"a", "b", "c", "x1", "y.sig"}),
	} {
		if same.Revision != base.Revision || same.Tags != 3 || !slices.Equal(same.Latest, []string{"c", "b", "a"}) {
			t.Errorf("%s: %+v, want %+v", what, same, base)
		}
	}
	seen := map[string]bool{base.Revision: true}
	for _, other := range []oci.Scan{
		scan(nil, []string{}), scan(nil, []string{"a", "b"}), scan(nil, []string{"a", "b", "c", "d"}), scan(nil, []string{"abc"}),
		scan(nil, []string{"ab", "c"}), scan([]string{"."}, []string{"a", "b", "cc"}, []string{"d"}), scan(nil, []string{"A", "b", "c"}),
	} {
		if seen[other.Revision] && other.Tags > 0 {
			t.Errorf("%+v has the revision of another set", other)
		}
		seen[other.Revision] = true
	}
	if empty := scan([]string{"."}, []string{"a"}); empty.Tags != 0 || empty.Revision != digestOf("") || len(empty.Latest) != 0 {
		t.Errorf("no tags: %+v", empty)
	}
}

func TestParseExclusions(t *testing.T) {
	for what, c := range map[string]struct {
		list []string
		text string // text of the error
	}{
		"no list":              {},
		"Flux's default":       {list: []string{`^.*\.sig$`}},
		"25 of them":           {list: slices.Repeat([]string{`^[0-9a-f]{40}$`}, 25)},
		"26 of them":           {slices.Repeat([]string{"a"}, 26), "spec.exclusionList: there are more than 25"},
		"an empty one":         {[]string{"a", ""}, "spec.exclusionList[1]: it is empty"},
		"one of 257 bytes":     {[]string{strings.Repeat("a", 257)}, "longer than 256 bytes"},
		"one that is none":     {[]string{"a", "b", "("}, "spec.exclusionList[2]: "},
		"a look-ahead":         {[]string{"(?=a)"}, "RE2"},
		"a back-reference":     {[]string{`(a)\1`}, "RE2"},
		"one that grows":       {[]string{strings.Repeat(`\pL{900}`, 30)}, "more than 2000 instructions"},
		"many that grow a bit": {slices.Repeat([]string{`[0-9a-f]{500}`}, 5), "spec.exclusionList[3]: the expressions are too large"},
	} {
		e, err := oci.ParseExclusions(c.list)
		switch {
		case c.text == "" && err != nil:
			t.Errorf("%s: %v", what, err)
		case c.text != "" && (origin.CodeOf(err) != origin.CodeInvalidReference || !strings.Contains(err.Error(), c.text)):
			t.Errorf("%s: %v, want %q", what, err, c.text)
		case c.text != "" && e.Match("a"):
			t.Errorf("%s: matches in spite of the error", what)
		}
	}
}

// TestSemVerFilterIsBounded checks that a filter of versions is refused if matching would take
// hours.
func TestSemVerFilterIsBounded(t *testing.T) {
	ref := oci.Reference{SemVer: "*", SemVerFilter: strings.Repeat(`\pL{900}`, 30)}
	if err := ref.Validate(); origin.CodeOf(err) != origin.CodeInvalidReference || !strings.Contains(err.Error(), "spec.ref.semverFilter: the expressions are too large") {
		t.Error(err)
	}
}

// FuzzTagsPage checks that [oci.Client.Tags] yields only tags, whatever page a registry sends. If
// Tags accepts a page, encoding/json must read the same tags from that page.
func FuzzTagsPage(f *testing.F) {
	for _, page := range []string{
		`{"name":"team/app","tags":["1.0.0","latest"]}`, `{"tags":null}`, `{"tags":[]}`, `{}`, `[]`, `{"tags":["a",1]}`, `{"tags":["` + "\x00" + `"]}`,
		`{"child":[],"manifest":{"sha256:a":{"tag":["x"],"n":1e400}},"name":"x","tags":["b"]}`, `{"tags":["a"],"tags":["b"]}`, `{"tags":["a"]} x`,
		`{"a":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]],"tags":["a"]}`, `{"tags":["\u0061\n"]}`, "\ufeff{}",
		`{"name":"","tagS":[""]}`, `{"tags":["a"],"\u0074ags":["b"],"TAGS":["c"]}`,
	} {
		f.Add([]byte(page))
	}
	repo, err := oci.ParseURL(appURL)
	must.Succeed(f, err)
	f.Fuzz(func(t *testing.T, page []byte) {
		answer := roundTripper(func(r *http.Request) (*http.Response, error) {
			w := httptest.NewRecorder()
			if r.URL.Path == "/v2/" {
				_, _ = io.WriteString(w, "{}")
			} else {
				_, _ = w.Write(page)
			}
			response := w.Result()
			response.Request = r
			return response, nil
		})
		client, err := oci.Connect(t.Context(), repo, oci.Options{Transport: answer})
		must.Succeed(t, err)
		got, err := collect(t.Context(), client)
		for _, tag := range got {
			if (oci.Reference{Tag: tag}).Validate() != nil || tag == "" {
				t.Errorf("%q came out of %q", tag, page)
			}
		}
		if err != nil {
			if origin.CodeOf(err) == "" {
				t.Errorf("%q: %v is no *origin.Error", page, err)
			}
			return
		}
		want, err := tagsOf(page)
		if err != nil {
			t.Fatalf("%q is read as %q, and encoding/json says %v", page, got, err)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q is read as %q, encoding/json reads %q", page, got, want)
		}
	})
}

// tagsOf reads a page with encoding/json. It returns the tags of all members with exactly the name
// "tags". json.Unmarshal would also read "tagS", and would return only the tags of the last such
// member.
func tagsOf(page []byte) ([]string, error) {
	if !json.Valid(page) {
		return nil, errors.New("the page is not one JSON value")
	}
	decoder := json.NewDecoder(bytes.NewReader(page))
	if start, err := decoder.Token(); err != nil || start != json.Delim('{') {
		return nil, errors.Join(errors.New("the page is no object"), err)
	}
	var tags []string
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return nil, err
		}
		var more []string
		value := any(new(json.RawMessage))
		if name == "tags" {
			value = &more
		}
		if err := decoder.Decode(value); err != nil {
			return nil, err
		}
		tags = append(tags, more...)
	}
	return tags, nil
}

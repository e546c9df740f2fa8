package oci

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/lanyard-dev/lanyard/internal/artifact/origin"
)

// Bounds of a list of tags. More bounds are in tagLimits.
const (
	// tagsPerPage is the requested size of a page. Amazon ECR refuses a larger number, and Azure's
	// registry sends no larger pages.
	tagsPerPage = "1000"
	// maxEmptyPages bounds the consecutive pages without a tag. One such page is normal: the last
	// page, or a page whose tags were deleted.
	maxEmptyPages = 10
	// maxToken is the maximum length of a string in a page, in bytes. A tag has at most 128.
	maxToken = 64 << 10
	// maxLink is the maximum length of a link to a next page, in bytes. Amazon ECR's links have
	// some hundreds.
	maxLink = 8 << 10
)

// Tags streams the repository's tags in the registry's order, page by page. Its memory does not
// grow with the number of tags. A tag may come twice if the repository changes during the listing.
//
// The sequence ends with the first error, an *origin.Error. Among its codes are:
//   - CodeTooLarge, if the list is longer than the limits
//   - CodeUnreachable, if ctx ends before the list
//   - CodeProtocol, if the list repeats a page, has too many pages without a tag, links to another
//     host, or has an entry that is not a tag
func (c *Client) Tags(ctx context.Context) iter.Seq2[string, error] { return c.tags(ctx, pages) }

// A listing of tags begins with one of these queries.
const (
	// pages is the query for a list in pages, so that no answer takes long.
	pages = "n=" + tagsPerPage
	// whole is the query for all tags in one answer. The distribution project's registry reads all
	// tags for each page. So it sends 50,000 tags ten times as fast in one answer as in 50 pages.
	// Amazon ECR and others answer this query with a page too, by default of a hundred tags. Then
	// the listing begins again, in pages of tagsPerPage tags.
	whole = ""
)

// tags implements Tags. The caller chooses the first query.
func (c *Client) tags(ctx context.Context, begin string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		l := &listing{client: c, bytes: c.maxTags.Bytes, asked: map[[sha256.Size]byte]struct{}{}, yield: yield}
		if err := l.run(ctx, begin); err != nil && !errors.Is(err, errStopped) {
			yield("", err)
		}
	}
}

// errStopped ends a listing after the caller has stopped the iteration.
var errStopped = errors.New("stopped")

// listing is a list of tags that is being read.
type listing struct {
	client *Client
	yield  func(string, error) bool
	bytes  int64                          // bytes that may still be read
	tags   int                            // number of tags so far
	empty  int                            // pages in a row without a tag
	asked  map[[sha256.Size]byte]struct{} // digests of the queries that were sent
}

func (l *listing) run(ctx context.Context, query string) error {
	for {
		sum := sha256.Sum256([]byte(query))
		if _, asked := l.asked[sum]; asked {
			return l.client.protocol("the list of tags leads back to a page that was read before")
		}
		if len(l.asked) == l.client.maxTags.Pages {
			return l.tooLarge("comes in more than %d pages", l.client.maxTags.Pages)
		}
		l.asked[sum] = struct{}{}
		next, err := l.page(ctx, query)
		if err != nil || next == "" {
			return err
		}
		query = next
	}
}

// page yields the tags of one page. It returns the query of the next page; empty if there is none.
func (l *listing) page(ctx context.Context, query string) (string, error) {
	u := l.client.url("tags", "list")
	u.RawQuery = query
	resp, err := l.client.send(ctx, http.MethodGet, u, targetTags)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close() //nolint:errcheck // read only
	if query == whole && resp.Header.Get("Link") != "" {
		return pages, nil
	}
	before := l.tags
	if err := l.read(ctx, resp.Body); err != nil {
		return "", err
	}
	if l.tags > before {
		l.empty = 0
	} else if l.empty++; l.empty > maxEmptyPages {
		return "", l.client.protocol(fmt.Sprintf("the list of tags has more than %d pages in a row without a tag", maxEmptyPages))
	}
	return l.client.following(resp)
}

// read decodes {"name": …, "tags": […]} while the page arrives. It skips all other members, in
// which Google's registries describe every image.
func (l *listing) read(ctx context.Context, body io.Reader) error {
	metered := &meter{next: body, left: l.bytes}
	// Allow duplicate names: to detect them, the decoder would hold all names in memory.
	page := jsontext.NewDecoder(metered, jsontext.AllowDuplicateNames(true))
	metered.decoded = page.InputOffset
	err := l.decode(ctx, page)
	l.bytes = metered.left
	switch {
	case !errors.Is(err, errNoList):
		return err
	case errors.Is(metered.err, errTooLong):
		return l.tooLarge("has more than %d bytes", l.client.maxTags.Bytes)
	case errors.Is(metered.err, errLongToken):
		return l.client.protocol(fmt.Sprintf("the list of tags holds a value of more than %d bytes", maxToken))
	case metered.err != nil:
		return l.client.bodyError(ctx, metered.err, "the list of tags")
	default:
		return l.client.protocol("the list of tags is not the JSON that it should be")
	}
}

// errNoList means that a page is not a list of tags.
var errNoList = errors.New("no list of tags")

func (l *listing) decode(ctx context.Context, page *jsontext.Decoder) error {
	if err := expect(page, jsontext.KindBeginObject); err != nil {
		return err
	}
	known := false
	for page.PeekKind() == jsontext.KindString {
		key, err := page.ReadToken()
		if err != nil {
			return errNoList
		}
		switch key.String() {
		case "tags":
			known, err = true, l.array(ctx, page)
		case "name":
			known, err = true, skip(page)
		default:
			err = skip(page)
		}
		if err != nil {
			return err
		}
	}
	if err := expect(page, jsontext.KindEndObject); err != nil || !known {
		return errNoList
	}
	if _, err := page.ReadToken(); !errors.Is(err, io.EOF) {
		return errNoList
	}
	return nil
}

// array yields the tags of one array. Null counts as an empty array.
func (l *listing) array(ctx context.Context, page *jsontext.Decoder) error {
	if page.PeekKind() == jsontext.KindNull {
		return skip(page)
	}
	if err := expect(page, jsontext.KindBeginArray); err != nil {
		return err
	}
	for page.PeekKind() == jsontext.KindString {
		value, err := page.ReadToken()
		if err != nil {
			return errNoList
		}
		tag := value.String()
		switch {
		case !IsTag(tag):
			return l.client.protocol("the list of tags holds something that is no tag")
		case l.tags == l.client.maxTags.Tags:
			return l.tooLarge("has more than %d tags", l.client.maxTags.Tags)
		case ctx.Err() != nil:
			return l.client.bodyError(ctx, ctx.Err(), "the list of tags")
		}
		l.tags++
		if !l.yield(tag, nil) {
			return errStopped
		}
	}
	return expect(page, jsontext.KindEndArray)
}

// expect reads one token, which must be of the wanted kind.
func expect(page *jsontext.Decoder, want jsontext.Kind) error {
	if got, err := page.ReadToken(); err != nil || got.Kind() != want {
		return errNoList
	}
	return nil
}

// skip discards one value of any kind. It reads the value token by token.
func skip(page *jsontext.Decoder) error {
	if err := page.SkipValue(); err != nil {
		return errNoList
	}
	return nil
}

// Errors of a meter that has reached a bound.
var (
	errTooLong   = errors.New("too many bytes")
	errLongToken = errors.New("a value is too long")
)

// meter bounds the bytes that a decoder reads, in total and for one value, because the decoder
// holds a whole value in memory.
type meter struct {
	next    io.Reader
	left    int64
	decoded func() int64 // returns how many bytes are decoded
	read    int64
	err     error // why reading failed; nil for io.EOF
}

func (m *meter) Read(p []byte) (int, error) {
	switch {
	case m.err != nil:
		return 0, m.err
	case m.read-m.decoded() > maxToken:
		// The decoder asks for more, although more than maxToken bytes are not decoded yet. So all
		// these bytes belong to one value, which is too long.
		m.err = errLongToken
		return 0, m.err
	case m.left < 0:
		m.err = errTooLong
		return 0, m.err
	}
	// Read one byte more than allowed, to distinguish the end from a body that is too long.
	n, err := m.next.Read(p[:min(int64(len(p)), m.left+1)])
	m.left -= int64(n)
	m.read += int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		m.err = err
	}
	return n, err
}

func (l *listing) tooLarge(format string, args ...any) *origin.Error {
	return &origin.Error{
		Server: l.client.session.server, Code: origin.CodeTooLarge, Field: l.client.repo.field, Fix: "remove old tags from the repository",
		Err: fmt.Errorf("the list of tags "+format, args...),
	}
}

// following returns the query of the next page from the Link headers (RFC 8288); empty if there is
// none. The link must refer to this registry and this list. Only the link's query is used, because
// a registry behind a TLS-terminating proxy writes http into the link.
func (c *Client) following(resp *http.Response) (string, error) {
	const malformed = "the link to the next page of tags is malformed"
	target, ok := nextLink(resp.Header.Values("Link"))
	switch {
	case !ok:
		return "", c.protocol(malformed)
	case target == "":
		return "", nil
	case len(target) > maxLink:
		return "", c.protocol(fmt.Sprintf("the link to the next page of tags has more than %d bytes", maxLink))
	}
	ref, err := url.Parse(target)
	if err != nil {
		return "", c.protocol(malformed)
	}
	next := resp.Request.URL.ResolveReference(ref)
	want := c.url("tags", "list")
	if next.Host != want.Host || path.Clean(next.Path) != want.Path || next.User != nil {
		return "", c.protocol("the link to the next page of tags leads elsewhere")
	}
	if next.RawQuery == "" {
		return "", c.protocol("the link to the next page of tags leads to the first")
	}
	return next.RawQuery, nil
}

// nextLink returns the target of the link that has the relation next. It also accepts a link
// without a relation, because some registries send such links. The target is empty if there is no
// link to a next page. The second result is false if a header is malformed.
func nextLink(headers []string) (string, bool) {
	for _, header := range headers {
		for rest := strings.TrimSpace(header); rest != ""; {
			target, after, ok := strings.Cut(strings.TrimPrefix(rest, "<"), ">")
			if !ok || !strings.HasPrefix(rest, "<") {
				return "", false
			}
			// A comma outside quotes ends a link. The parameters of these links have no quoted
			// commas, so every comma ends a link.
			parameters, others, _ := strings.Cut(after, ",")
			if isNext(parameters) {
				return target, target != ""
			}
			rest = strings.TrimSpace(others)
		}
	}
	return "", true
}

func isNext(parameters string) bool {
	relation := "next"
	for parameter := range strings.SplitSeq(parameters, ";") {
		if name, value, _ := strings.Cut(strings.TrimSpace(parameter), "="); strings.EqualFold(name, "rel") {
			relation = strings.Trim(strings.TrimSpace(value), `"`)
		}
	}
	return slices.ContainsFunc(strings.Fields(relation), func(r string) bool { return strings.EqualFold(r, "next") })
}

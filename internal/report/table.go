package report

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"unicode"
	"unicode/utf8"

	"github.com/lanyard-dev/lanyard/examples"
)

// maxExpected is the length of the column EXPECTED, in runes, where the table is not wide. A reason that can come is shorter.
const maxExpected = 40

// maxWhy is the length of the column WHY, in runes, where the table is not wide.
const maxWhy = 80

// Table writes rows as a table for people. Where it is wide, nothing is shortened.
func Table(w io.Writer, rows []Row, wide bool) error {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	expectations := false
	for _, r := range rows {
		expectations = expectations || r.Expected != ""
	}
	titles := []string{"NAMESPACE", "OBJECT", "IDENTITY", "RESULT"}
	if expectations {
		titles = append(titles, "EXPECTED")
	}
	line(t, append(titles, "WHY"))
	for _, r := range rows {
		cells := []string{r.Namespace, r.object(), r.identity(wide), r.result(wide)}
		if expectations {
			cells = append(cells, r.expected(wide))
		}
		line(t, append(cells, r.why(wide)))
	}
	return t.Flush()
}

func line(w io.Writer, cells []string) {
	for i, c := range cells {
		cells[i] = Plain(c)
	}
	_, _ = fmt.Fprintln(w, strings.Join(cells, "\t")) // a tabwriter reports its errors when flushed
}

// Plain takes the characters that cannot be seen out of a text that a tenant or a registry may have written: they would move
// the terminal's cursor or the table's cells, or turn the text around.
func Plain(s string) string {
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) {
			return ' '
		}
		return r
	}, s)
}

// object is the object as kubectl names it.
func (r Row) object() string { return strings.ToLower(r.Kind) + "/" + r.Name }

func (r Row) identity(wide bool) string {
	switch account, isAccount := strings.CutPrefix(r.Subject, "system:serviceaccount:"+r.Namespace+":"); {
	case r.Identity == r.Subject && r.Identity != "" && isAccount && !wide:
		return "sa/" + account
	case r.Identity == r.Subject && r.Identity != "":
		return r.Identity
	case r.Identity != "" && wide:
		return r.Identity + " for " + r.Subject
	case r.Identity != "":
		return Short(r.Identity)
	case r.Subject == "":
		return "-"
	case wide:
		return "none for " + r.Subject
	case isAccount:
		return "none (sa/" + account + ")"
	default:
		return "none (" + r.Subject + ")"
	}
}

// Short is the part of an identity by which people tell tenants apart: the resource of an ARN ("role/<name>"), the client ID of
// Azure's tenant and client, a Google service account without its domain, the subject of a principal. Anything else is returned
// as it is.
func Short(identity string) string {
	const (
		arnFields = 6  // arn:<partition>:<service>:<region>:<account>:<resource>
		guid      = 36 // RFC 9562 §4
	)
	if parts := strings.SplitN(identity, ":", arnFields); len(parts) == arnFields && parts[0] == "arn" {
		return parts[arnFields-1]
	}
	if tenant, client, ok := strings.Cut(identity, "/"); ok && len(tenant) == guid && len(client) == guid {
		return client
	}
	if _, subject, ok := strings.Cut(identity, "/subject/"); ok && strings.HasPrefix(identity, "principal://") {
		return subject
	}
	return strings.TrimSuffix(identity, ".iam.gserviceaccount.com")
}

func (r Row) result(wide bool) string {
	switch {
	case r.Result == Scanned && r.Tags != nil:
		return fmt.Sprintf("%s, tags: %d", r.Result, *r.Tags)
	case r.Result != Pulled:
		return string(r.Result)
	case wide:
		return string(r.Result) + " " + r.Revision
	default:
		return string(r.Result) + " " + ShortRevision(r.Revision)
	}
}

// ShortRevision shortens the digest in a revision to the seven digits by which people tell digests apart.
func ShortRevision(revision string) string {
	const digits = 7
	tag, digest, tagged := strings.Cut(revision, "@")
	if !tagged {
		tag, digest = "", revision
	}
	if _, hex, ok := strings.Cut(digest, ":"); ok && len(hex) > digits {
		digest = hex[:digits]
	}
	if tagged {
		return tag + "@" + digest
	}
	return digest
}

func (r Row) expected(wide bool) string {
	switch {
	case r.AsExpected == nil:
		return "-"
	case *r.AsExpected:
		return "yes"
	case wide:
		return "NO: " + r.Expected
	default:
		return Shorten("NO: "+r.Expected, maxExpected)
	}
}

func (r Row) why(wide bool) string {
	if r.Expected != "" && CheckExpectation(r.Expected) != nil {
		return "annotation " + examples.ExpectAnnotation + " is neither " + ExpectPulled + " nor " + ExpectRefused + "<reason>"
	}
	if r.Reason == "" {
		return "the controller has not seen it yet"
	}
	why := r.Reason + ": " + r.Message
	if wide {
		return why
	}
	return Shorten(why, maxWhy)
}

// Shorten cuts a text to at most n runes, the last of which then is an ellipsis.
func Shorten(s string, n int) string {
	if runes := []rune(s); len(runes) > n {
		return string(runes[:n-1]) + "…"
	}
	return s
}

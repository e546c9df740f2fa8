package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/spec"
	"github.com/lanyard-dev/lanyard/examples"
	"github.com/lanyard-dev/lanyard/internal/plain"
)

// maxExpected is the maximum width of the column EXPECTED, in runes. It does not apply with -o
// wide.
const maxExpected = 40

// maxWhy is the maximum width of the column WHY, in runes. It does not apply with -o wide.
const maxWhy = 80

// Table writes rows as a table for people. A wide table shortens nothing.
func Table(w io.Writer, rows []Row, wide bool) error {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	expectations := slices.ContainsFunc(rows, func(r Row) bool { return r.Expected != "" })
	titles := []string{"NAMESPACE", "OBJECT", "IDENTITY", "RESULT"}
	if expectations {
		titles = append(titles, "EXPECTED")
	}
	Line(t, append(titles, "WHY")...)
	for _, r := range rows {
		cells := []string{cmp.Or(r.Namespace, "-"), r.object(), r.identity(wide), r.result(wide)}
		if expectations {
			cells = append(cells, r.expected(wide))
		}
		Line(t, append(cells, r.why(wide))...)
	}
	return t.Flush()
}

// Line writes a line of a table. The writer must be a tabwriter: Line ignores errors, because Flush
// reports them.
func Line(w io.Writer, cells ...string) {
	for i, c := range cells {
		cells[i] = plain.Text(c)
	}
	_, _ = fmt.Fprintln(w, strings.Join(cells, "\t"))
}

// object returns the object's name as kubectl writes it.
func (r Row) object() string { return strings.ToLower(r.Kind) + "/" + r.Name }

func (r Row) identity(wide bool) string {
	switch short := r.subject(); {
	case r.Identity == r.Subject && r.Identity != "" && !wide:
		return short
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
	default:
		return "none (" + short + ")"
	}
}

// subject returns the row's subject, in kubectl's form if possible, such as sa/<name>. This form
// has no namespace. So it is only for two sorts of subjects: those in the row's namespace, and
// those that have no namespace because administrators lend them. Any other text is returned
// unchanged.
func (r Row) subject() string {
	subject, err := auth.ParseSubject(r.Subject)
	switch {
	case err != nil, !subject.Lent() && subject.Namespace() != r.Namespace:
		return r.Subject
	case subject.Kind() == auth.KindServiceAccount:
		return "sa/" + subject.Name()
	case subject.Kind() == auth.KindWorkloadIdentity:
		return "lwi/" + subject.Name()
	case slices.Contains(spec.AWSIdentityKinds(), subject.Kind()):
		return strings.ToLower(string(subject.Kind())) + "/" + subject.Name()
	default:
		return r.Subject
	}
}

// Short returns the part of an identity by which people distinguish tenants:
//
//   - the resource of an ARN ("role/<name>")
//   - Azure's client ID, without the tenant
//   - a Google service account, without its domain
//   - the subject of a Google principal
//
// Any other identity is returned unchanged.
func Short(identity string) string {
	const (
		arnFields = 6  // arn:<partition>:<service>:<region>:<account>:<resource>
		guid      = 36 // length of a UUID, RFC 9562 §4
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
	if provider, account, ok := strings.Cut(identity, "/serviceAccounts/"); ok && strings.HasPrefix(provider, "projects/") {
		// Leave out the workload identity provider: the service account distinguishes tenants.
		identity = account
	}
	return strings.TrimSuffix(identity, ".iam.gserviceaccount.com")
}

func (r Row) result(wide bool) string {
	switch {
	case r.Result == Scanned && r.Tags != nil:
		return fmt.Sprintf("%s, tags: %d", r.Result, *r.Tags)
	case r.Result == Delivered && r.ExpiresAt != nil:
		return fmt.Sprintf("%s until %s", r.Result, r.ExpiresAt.UTC().Format(time.RFC3339))
	case r.Result != Pulled && r.Result != Applied:
		return string(r.Result)
	case wide:
		return string(r.Result) + " " + r.Revision
	default:
		return string(r.Result) + " " + ShortRevision(r.Revision)
	}
}

// ShortRevision shortens the digest in a revision to seven digits, enough for people to distinguish
// digests.
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

// Shorten cuts a text to at most n runes. A cut text ends with an ellipsis.
func Shorten(s string, n int) string {
	if runes := []rune(s); len(runes) > n {
		return string(runes[:n-1]) + "…"
	}
	return s
}

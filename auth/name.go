package auth

import "strings"

// Limits of names, in bytes. Source: Kubernetes documentation, "Object Names and IDs".
const (
	maxLabel     = 63
	maxSubdomain = 253
)

// IsLabel reports whether s is an RFC 1123 label in lower case, such as the name of a namespace. A
// label has at most 63 letters, digits and hyphens, and neither begins nor ends with a hyphen.
func IsLabel(s string) bool { return len(s) <= maxLabel && !strings.Contains(s, ".") && IsSubdomain(s) }

// IsSubdomain reports whether s is an RFC 1123 subdomain in lower case, such as the name of most
// Kubernetes objects. A subdomain consists of labels with dots between them, and has at most 253
// bytes. As in Kubernetes, a single label may be longer than 63 bytes.
func IsSubdomain(s string) bool {
	if len(s) > maxSubdomain {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for i := range len(label) {
			if c := label[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
				return false
			}
		}
	}
	return true
}

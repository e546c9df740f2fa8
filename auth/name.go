package auth

import "strings"

// Limits of names, in bytes. Source: Kubernetes documentation, "Object Names and IDs".
const (
	maxLabel     = 63
	maxSubdomain = 253
)

// IsLabel reports whether s is an RFC 1123 label in lower case, as the names of namespaces are: at most 63 letters, digits and
// hyphens that neither begin nor end in a hyphen.
func IsLabel(s string) bool { return len(s) <= maxLabel && !strings.Contains(s, ".") && IsSubdomain(s) }

// IsSubdomain reports whether s is an RFC 1123 subdomain in lower case, as the names of most Kubernetes objects are: labels with dots
// between them, of at most 253 bytes together. As in Kubernetes, one of its labels may have more than 63 bytes.
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

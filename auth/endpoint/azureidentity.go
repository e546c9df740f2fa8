package endpoint

import "strings"

// ParseGUID returns the ID of a Microsoft Entra tenant, application or subscription in lower case:
// 32 hexadecimal digits in groups of 8, 4, 4, 4 and 12 (RFC 9562 §4). Other names of a tenant are
// refused. With the words common, organizations and consumers Entra would choose the tenant, and a
// domain can get another owner. The error is an [*Error].
func ParseGUID(s string) (string, error) {
	const form = "00000000-0000-0000-0000-000000000000"
	refuse := func() (string, error) {
		return "", &Error{
			What: "ID", Reason: ReasonMalformed, Detail: quote(s) + " is not a GUID",
			Fix: "write the ID as " + form + ", in hexadecimal digits",
		}
	}
	if len(s) != len(form) {
		return refuse()
	}
	for i := range len(s) {
		c := s[i] | 0x20
		if hex := '0' <= s[i] && s[i] <= '9' || 'a' <= c && c <= 'f'; hex == (form[i] == '-') || !hex && s[i] != '-' {
			return refuse()
		}
	}
	return strings.ToLower(s), nil
}

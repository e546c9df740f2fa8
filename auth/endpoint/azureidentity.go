package endpoint

// ParseGUID returns the ID of a Microsoft Entra tenant, application or subscription in lower case.
// The ID has 32 hexadecimal digits in groups of 8, 4, 4, 4 and 12 (RFC 9562 §4). The error is an
// [*Error].
//
// Other names of a tenant are refused. With "common", "organizations" and "consumers", Entra itself
// would choose the tenant. A domain name can get another owner.
func ParseGUID(s string) (string, error) {
	const form = "00000000-0000-0000-0000-000000000000"
	id := lowerASCII(s)
	valid := len(id) == len(form)
	for i := 0; valid && i < len(form); i++ {
		valid = id[i] == form[i] && form[i] == '-' || isHex(id[i]) && form[i] != '-'
	}
	if !valid {
		return "", &Error{
			What: "ID", Reason: ReasonMalformed, Detail: quote(s) + " is not a GUID",
			Fix: "write the ID as " + form + ", in hexadecimal digits",
		}
	}
	return id, nil
}

package tenant

// CheckBounds refuses an interval or a timeout that the schema does not allow.
var CheckBounds = checkBounds

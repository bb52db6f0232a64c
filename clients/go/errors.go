package main

import (
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"
)

// reason returns the stable reason of an error, such as "VERSION_MISMATCH", or "" when it has none.
func reason(err error) string {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.GetDomain() == "context-service" {
			return info.GetReason()
		}
	}
	return ""
}

// violations returns the invalid fields of the request: name to description. Several descriptions of a field are joined
// with "; ".
func violations(err error) map[string]string {
	fields := map[string]string{}
	for _, detail := range status.Convert(err).Details() {
		if bad, ok := detail.(*errdetails.BadRequest); ok {
			for _, violation := range bad.GetFieldViolations() {
				description := violation.GetDescription()
				if earlier, ok := fields[violation.GetField()]; ok {
					description = earlier + "; " + description
				}
				fields[violation.GetField()] = description
			}
		}
	}
	return fields
}

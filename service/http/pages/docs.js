// Swagger UI over /openapi.json. Nothing comes from elsewhere, and nothing is sent elsewhere: its online validator is off.
SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  defaultModelsExpandDepth: 0,
  validatorUrl: null,
});

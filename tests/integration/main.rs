mod variant;
